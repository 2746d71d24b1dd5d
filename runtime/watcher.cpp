// SPDX-License-Identifier: Apache-2.0
#include "runtime/watcher.hpp"

#include <chrono>
#include <system_error>

#include "davit/error.hpp"
#include "runtime/communicator_state.hpp"

namespace davit::detail {
namespace {

// How soon a thread that is stuck in a GPU's driver is noticed.
constexpr auto kInterval = std::chrono::milliseconds(20);

}  // namespace

Watcher& Watcher::of_process() {
  static Watcher instance;
  return instance;
}

Watcher::~Watcher() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watcher::start() {
  std::lock_guard const lock(mutex_);
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (std::system_error const& error) {
    throw SystemError(std::string("davit: the thread that looks after GPUs cannot be started: ") + error.what());
  }
}

void Watcher::add(CommunicatorState& state) {
  {
    std::lock_guard const lock(mutex_);
    watched_.push_back(&state);
  }
  changed_.notify_all();
}

void Watcher::remove(CommunicatorState& state) noexcept {
  std::lock_guard const lock(mutex_);
  std::erase(watched_, &state);
}

void Watcher::leave(DeviceEngine& engine, std::shared_ptr<void> used) {
  std::lock_guard const lock(mutex_);
  left_.emplace_back(&engine, std::move(used));
}

void Watcher::serve() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    for (auto* const state : watched_) state->watch_over();
    for (auto& [engine, used] : left_) {
      if (engine != nullptr && engine->run_out()) engine = nullptr;
    }
    if (watched_.empty() && left_.empty()) {
      changed_.wait(lock, [this] { return stop_ || !watched_.empty() || !left_.empty(); });
    } else {
      changed_.wait_for(lock, kInterval, [this] { return stop_; });
    }
  }
}

}  // namespace davit::detail
