// SPDX-License-Identifier: Apache-2.0
#include "runtime/leaving.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace davit::detail {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

void Leaving::add(std::shared_ptr<void> memory, std::unique_ptr<StreamMark> mark) {
  std::lock_guard const lock(mutex_);
  items_.push_back({std::move(memory), std::move(mark)});
  any_.store(true, std::memory_order_release);
}

void Leaving::sweep() noexcept {
  if (!any_.load(std::memory_order_acquire)) return;
  std::list<Item> gone;  // ends without the lock
  std::lock_guard const lock(mutex_);
  for (auto item = items_.begin(); item != items_.end();) {
    auto const next = std::next(item);
    if (item->mark == nullptr || item->mark->is_passed()) gone.splice(gone.end(), items_, item);
    item = next;
  }
  any_.store(!items_.empty(), std::memory_order_release);
}

Leaving::~Leaving() {
  auto const deadline = std::chrono::steady_clock::now() + kPatience;
  for (sweep(); !items_.empty() && std::chrono::steady_clock::now() < deadline; sweep()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (!items_.empty()) keep_to_the_end(items_);
}

void Leaving::keep_to_the_end(std::list<Item>& items) {
  static auto& kept = *new std::list<Item>;  // never destroyed, and reachable: nobody takes it for lost
  static std::mutex mutex;
  std::lock_guard const lock(mutex);
  kept.splice(kept.end(), items);
}

}  // namespace davit::detail
