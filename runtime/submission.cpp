// SPDX-License-Identifier: Apache-2.0
#include "runtime/submission.hpp"

#include <thread>

namespace davit::detail {

void Submission::begin(Behind behind) noexcept {
  state_.fetch_or(behind == Behind::stream ? kBehindStream : kBehindNothing, std::memory_order_release);
}

void Submission::end() {
  auto const before = state_.load(std::memory_order_relaxed);
  auto const next = (before & ~kMask) + kMask + 1;
  if ((state_.exchange(next, std::memory_order_acq_rel) & kMask) != kClaimed) return;
  // The communicator has failed for good, so this is the last submission of all.
  while (!error_is_there_.load(std::memory_order_acquire)) std::this_thread::yield();
  std::rethrow_exception(error_);
}

std::optional<Submission::Seen> Submission::under_way() const noexcept {
  auto const state = state_.load(std::memory_order_acquire);
  auto const kind = state & kMask;
  if (kind == kIdle) return std::nullopt;
  return Seen{state, kind == kBehindNothing ? Behind::nothing : Behind::stream, kind == kClaimed};
}

bool Submission::claim(Seen const& seen) noexcept {
  auto expected = seen.state;
  return state_.compare_exchange_strong(expected, seen.state | kClaimed, std::memory_order_acq_rel);
}

void Submission::end_with(std::exception_ptr error) noexcept {
  error_ = std::move(error);
  error_is_there_.store(true, std::memory_order_release);
}

}  // namespace davit::detail
