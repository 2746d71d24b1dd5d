// SPDX-License-Identifier: Apache-2.0
#include "transports/wait.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace davit {
namespace {

// A rank that is merely preempted comes back within a few scheduler slices; whoever slept meanwhile is then late
// itself.
constexpr auto kAwake = std::chrono::milliseconds(50);
constexpr auto kRestAwake = std::chrono::microseconds(200);
constexpr long kFirstSleepNanoseconds = 20'000;
constexpr long kLongestSleepNanoseconds = 1'000'000;
constexpr std::uint32_t kSpinsALook = 512;
constexpr std::uint32_t kYieldsALook = 16;

inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool Backoff::idle() noexcept {
  auto const a_look = eagerness_ == Eagerness::spin ? kSpinsALook : kYieldsALook;
  if (eagerness_ == Eagerness::spin) {
    pause();
  } else {
    sched_yield();
  }
  if (++polls_ % a_look != 0) return false;
  auto const now = std::chrono::steady_clock::now();
  if (polls_ == a_look) since_ = now;
  auto const waited = now - since_;
  auto const awake = eagerness_ == Eagerness::rest ? std::chrono::steady_clock::duration(kRestAwake) : kAwake;
  if (waited < awake) return true;
  auto const nap = std::clamp<long>(std::chrono::nanoseconds(waited - awake).count() / 8, kFirstSleepNanoseconds,
                                    kLongestSleepNanoseconds);
  timespec const request{0, nap};
  nanosleep(&request, nullptr);
  polls_ -= 1;  // look again after the next poll: asleep, polls are few
  return true;
}

}  // namespace davit
