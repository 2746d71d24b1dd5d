// SPDX-License-Identifier: Apache-2.0
#include "transports/held.hpp"

#include <algorithm>

namespace davit {
namespace {

bool is_open(HoldOp const& hold) noexcept { return has_reached(load_acquire(*hold.counter), hold.value); }

}  // namespace

void Held::add(HoldOp const& hold) {
  std::lock_guard const lock(mutex_);
  holds_.push_back(hold);
  if (holds_.size() < prune_at_) return;
  while (!holds_.empty() && is_open(holds_.front())) holds_.pop_front();
  prune_at_ = std::max(kFirstPrune, 2 * holds_.size());
}

std::optional<Blocked> Held::first_closed() const noexcept {
  std::lock_guard const lock(mutex_);
  for (auto const& hold : holds_) {
    auto const there = load_acquire(*hold.counter);
    if (!has_reached(there, hold.value)) return Blocked{hold.peer, hold.awaited, hold.value, there};
  }
  return std::nullopt;
}

void Held::release() noexcept {
  std::lock_guard const lock(mutex_);
  // From the back: once a counter has the last value, the earlier holds on it are open.
  for (auto hold = holds_.rbegin(); hold != holds_.rend(); ++hold) {
    if (!is_open(*hold)) store_release(const_cast<Counter&>(*hold->counter), hold->value);
  }
}

void Held::clear() noexcept {
  std::lock_guard const lock(mutex_);
  holds_.clear();
  prune_at_ = kFirstPrune;
}

}  // namespace davit
