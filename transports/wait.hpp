// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a CPU waits for a word in memory: spin, then yield, then sleep in growing steps. No futex: a copy engine's store
/// wakes none, and libstdc++'s atomic wait does not cross processes.
#pragma once

#include <chrono>
#include <cstdint>

namespace davit {

/// One wait. Call idle() after each poll that found nothing, moved() after each that did.
class Backoff {
 public:
  /// @param crowded more threads wait than there are cores: spinning only keeps the awaited one from running.
  explicit Backoff(bool crowded) noexcept : spins_(crowded ? 4 : 20000) {}

  void moved() noexcept { polls_ = 0; }

  /// Waits a moment. @returns true now and then (about every 20 microseconds of waiting at first, at least every few
  /// milliseconds): time to look after slower things, such as the deadline or a dead peer.
  bool idle() noexcept;

 private:
  std::uint32_t spins_;
  std::uint32_t polls_ = 0;
};

}  // namespace davit
