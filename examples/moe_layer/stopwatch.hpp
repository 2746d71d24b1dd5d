// SPDX-License-Identifier: Apache-2.0
/// @file
/// Takes the time of each phase of a batch, and notes what davit moved in it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "davit/communicator.hpp"
#include "examples/support/world.hpp"

namespace moe {

enum class Phase : std::uint8_t { route, dispatch, experts, combine };
constexpr std::size_t phases = 4;
constexpr std::array<char const*, phases> phase_names{"route", "dispatch", "experts", "combine"};

/// Of one batch on this rank, a number a phase.
using Seconds = std::array<double, phases>;
using Moved = std::array<davit::Stats, phases>;

class Stopwatch {
 public:
  /// @param settle waits for what a phase has enqueued.
  Stopwatch(davit::Communicator& comm, std::function<void()> settle) : comm_(comm), settle_(std::move(settle)) {}

  /// Collective: the next phase begins when all ranks are here, so that no phase pays for the ranks' unequal last one.
  void start();
  /// Collective, as start: this rank's phase ended when it called.
  void done(Phase phase);

  [[nodiscard]] Seconds const& seconds() const noexcept { return seconds_; }
  [[nodiscard]] Moved const& moved() const noexcept { return moved_; }

 private:
  davit::Communicator& comm_;
  std::function<void()> settle_;
  std::chrono::steady_clock::time_point begin_;
  davit::Stats before_;
  Seconds seconds_{};
  Moved moved_{};
};

/// Field by field.
[[nodiscard]] davit::Stats operator-(davit::Stats const& after, davit::Stats const& before) noexcept;
davit::Stats& operator+=(davit::Stats& sum, davit::Stats const& more) noexcept;
/// Collective: all ranks together.
[[nodiscard]] davit::Stats sum_of(support::World const& world, davit::Stats const& mine);

}  // namespace moe
