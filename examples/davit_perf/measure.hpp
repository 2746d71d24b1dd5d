// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stop-watch: two sides, batch by batch in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "examples/davit_perf/device.hpp"
#include "examples/support/world.hpp"

namespace perf {

/// One call of one side: changes its input to that of round `round`, then runs. Collective; both sides change equally
/// much.
struct Step {
  std::function<void(std::uint64_t round)> call;
  bool blocks;  ///< it waits for its own end
};

/// What the samples of one side say, in microseconds a call.
struct Times {
  double p50 = 0;
  double p99 = 0;
  double min = 0;
};

struct Result {
  Times davit;
  Times peer;
  int batches = 0;              ///< samples a side
  std::int64_t iterations = 0;  ///< calls a sample
};

class Meter {
 public:
  Meter(support::World const& world, Device& device, int batches) : world_(world), device_(device), batches_(batches) {}

  /// Collective: warms up, agrees on the calls a batch, measures. No batch is shorter than the device's least.
  [[nodiscard]] Result compare(Step const& davit, Step const& peer);

  /// First of `count` rounds that nobody has had yet; the same on all ranks.
  [[nodiscard]] std::uint64_t take_rounds(std::uint64_t count) noexcept;

 private:
  /// The slowest rank's time of a batch, in microseconds a call.
  [[nodiscard]] double sample(Step const& step, std::int64_t iterations);
  [[nodiscard]] Result measure(Step const& davit, Step const& peer, std::int64_t iterations);
  /// Calls that take the least time of a batch or more; runs them meanwhile, which warms up.
  [[nodiscard]] std::int64_t calibrate(Step const& step);

  /// More calls a batch than now, where a call has taken `us`; at most tenfold, since first calls are slow.
  [[nodiscard]] std::int64_t enough(std::int64_t iterations, double us) const;

  support::World const& world_;
  Device& device_;
  int batches_;
  std::uint64_t round_ = 0;
};

/// Linear between neighbours; `samples` need not be sorted, and are at least one.
[[nodiscard]] double percentile(std::vector<double> samples, double percent);

}  // namespace perf
