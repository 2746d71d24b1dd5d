// SPDX-License-Identifier: Apache-2.0
/// @file
/// What main runs: one function a kind of operation.
#pragma once

#include "davit/communicator.hpp"
#include "examples/davit_perf/measure.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/davit_perf/report.hpp"
#include "examples/support/world.hpp"

namespace perf {

struct Bench {
  support::World const& world;
  Options const& options;
  davit::Communicator& comm;
  Meter& meter;
  Report& report;
};

// Collective. True if no check failed, or none was asked for.
[[nodiscard]] bool run_exchange(Bench const& bench);
[[nodiscard]] bool run_moe(Bench const& bench);

/// Collective: whether the bytes are equal on all ranks; a rank where they differ says at which byte of `what`.
[[nodiscard]] bool all_equal(Bench const& bench, std::string const& what, std::span<std::byte const> of_davit,
                             std::span<std::byte const> of_peer);

/// Collective: runs `call` once and says what it moved, all ranks together. The payload is what must cross at least.
[[nodiscard]] davit::Stats moved_by(Bench const& bench, std::function<void()> const& call);

}  // namespace perf
