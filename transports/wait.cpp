// SPDX-License-Identifier: Apache-2.0
#include "transports/wait.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace davit {
namespace {

constexpr std::uint32_t kYields = 2000;  // about a millisecond of yielding before the first sleep
constexpr long kFirstSleepNanoseconds = 20'000;
constexpr long kLongestSleepNanoseconds = 1'000'000;

inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool Backoff::idle() noexcept {
  auto const poll = polls_++;
  if (poll < spins_) {
    pause();
    return poll % 512 == 511;
  }
  if (poll < spins_ + kYields) {
    sched_yield();
    return poll % 16 == 15;
  }
  auto const step = std::min<std::uint32_t>((poll - spins_ - kYields) / 16, 6);
  timespec const nap{0, std::min(kFirstSleepNanoseconds << step, kLongestSleepNanoseconds)};
  nanosleep(&nap, nullptr);
  return true;
}

}  // namespace davit
