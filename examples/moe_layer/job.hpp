// SPDX-License-Identifier: Apache-2.0
/// @file
/// The whole job: the text, batch by batch, through the layer, and what came of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "examples/moe_layer/options.hpp"
#include "examples/moe_layer/reference.hpp"
#include "examples/moe_layer/stopwatch.hpp"
#include "examples/moe_layer/tally.hpp"
#include "examples/support/world.hpp"

namespace moe {

/// Of one side of the comparison.
struct Side {
  Seconds seconds{};    ///< of a batch: the slowest rank's, median over the batches
  double exchange = 0;  ///< of all phases but the experts, likewise
  Comparison found;
  double tolerance = 0;
  bool compares_bits = true;
  [[nodiscard]] bool ok() const noexcept { return found.unequal == 0 && found.too_far == 0; }
};

/// All ranks together; the same on every rank.
struct Outcome {
  std::string device;  ///< in words
  std::int64_t text_bytes = 0;
  std::int64_t batches = 0;
  std::int64_t fewest_tokens = 0;  ///< of a rank, all batches
  std::int64_t most_tokens = 0;
  Tally tally;
  Moved moved{};
  Side davit;
  std::optional<Side> mpi;
  double seconds = 0;
  [[nodiscard]] bool ok() const noexcept { return davit.ok() && (!mpi || mpi->ok()); }
};

/// Collective. A rank that finds a wrong element says so on stderr.
[[nodiscard]] Outcome run_job(support::World const& world, Options const& options);

}  // namespace moe
