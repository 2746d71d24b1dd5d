// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/measure.hpp"

#include <algorithm>
#include <cmath>

namespace perf {
namespace {

constexpr int warm_up_batches = 3;

Times times_of(std::vector<double> const& samples) {
  return {percentile(samples, 50), percentile(samples, 99), percentile(samples, 0)};
}

}  // namespace

std::uint64_t Meter::take_rounds(std::uint64_t count) noexcept {
  auto const first = round_;
  round_ += count;
  return first;
}

double Meter::sample(Step const& step, std::int64_t iterations) {
  auto round = take_rounds(static_cast<std::uint64_t>(iterations));
  auto const calls = [&] {
    for (std::int64_t i = 0; i < iterations; ++i) step.call(round++);
  };
  world_.barrier();
  auto const mine = device_.time({calls, step.blocks});
  return world_.max(mine) / static_cast<double>(iterations);
}

std::int64_t Meter::enough(std::int64_t iterations, double us) const {
  auto const wanted = std::min(1.3 * device_.least_batch_us() / us, 10.0 * static_cast<double>(iterations));
  return std::max(iterations + 1, static_cast<std::int64_t>(std::ceil(wanted)));
}

std::int64_t Meter::calibrate(Step const& step) {
  for (std::int64_t iterations = 1;;) {
    // The quickest of a few, so that a disturbance now does not make every batch too short.
    double quickest = sample(step, iterations);
    for (int i = 1; i < warm_up_batches; ++i) quickest = std::min(quickest, sample(step, iterations));
    if (quickest * static_cast<double>(iterations) >= device_.least_batch_us()) return iterations;
    iterations = enough(iterations, quickest);
  }
}

Result Meter::compare(Step const& davit, Step const& peer) {
  // The same number for both: it is what the quicker side needs.
  auto iterations = std::max(calibrate(davit), calibrate(peer));
  while (true) {
    auto const result = measure(davit, peer, iterations);
    auto const quickest = std::min(result.davit.min, result.peer.min);
    if (quickest * static_cast<double>(iterations) >= device_.least_batch_us()) return result;
    iterations = enough(iterations, quickest);  // the machine was busier when it was asked
  }
}

Result Meter::measure(Step const& davit, Step const& peer, std::int64_t iterations) {
  std::vector<double> of_davit;
  std::vector<double> of_peer;
  for (int batch = 0; batch < batches_; ++batch) {
    bool const davit_first = batch % 2 == 0;
    if (davit_first) of_davit.push_back(sample(davit, iterations));
    of_peer.push_back(sample(peer, iterations));
    if (!davit_first) of_davit.push_back(sample(davit, iterations));
  }
  return {.davit = times_of(of_davit), .peer = times_of(of_peer), .batches = batches_, .iterations = iterations};
}

double percentile(std::vector<double> samples, double percent) {
  std::ranges::sort(samples);
  auto const place = percent / 100 * static_cast<double>(samples.size() - 1);
  auto const below = static_cast<std::size_t>(place);
  auto const above = std::min(below + 1, samples.size() - 1);
  auto const share = place - static_cast<double>(below);
  return samples[below] + share * (samples[above] - samples[below]);
}

}  // namespace perf
