// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a CPU waits for a word in memory: spin, then yield, then sleep in growing steps. No futex: a copy engine's store
/// wakes none, and libstdc++'s atomic wait does not cross processes.
#pragma once

#include <chrono>
#include <cstdint>

namespace davit {

/// How eagerly to wait.
enum class Eagerness {
  spin,   ///< a core for each waiter: spin, as MPI libraries do
  yield,  ///< more waiters than cores: spinning only keeps the awaited one from running
  rest    ///< nobody waits for this thread: sleep soon
};

/// One wait. Call idle() after each poll that found nothing, moved() after each that did.
class Backoff {
 public:
  explicit Backoff(Eagerness eagerness) noexcept : eagerness_(eagerness) {}

  void moved() noexcept { polls_ = 0; }

  /// Waits a moment. @returns true now and then (about every 20 microseconds of waiting at first, at least every few
  /// milliseconds): time to look after slower things, such as the deadline or a dead peer.
  bool idle() noexcept;

 private:
  Eagerness eagerness_;
  std::uint32_t polls_ = 0;
  std::chrono::steady_clock::time_point since_{};  ///< of the first slow look
};

}  // namespace davit
