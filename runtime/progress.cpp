// SPDX-License-Identifier: Apache-2.0
#include "runtime/progress.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "davit/error.hpp"
#include "runtime/communicator_state.hpp"
#include "transports/topology.hpp"
#include "transports/wait.hpp"

namespace davit::detail {
namespace {

/// The thread begins with the mask of whoever opened the first call; it keeps to what of it is near the rank's GPU.
void stay_near(int node) noexcept {
  auto const& topology = Topology::of_this_machine();
  auto const* const near = topology.is_this_machine() ? topology.machine().node(node) : nullptr;
  if (near != nullptr && topology.machine().nodes.size() > 1) Topology::keep_thread_to(near->cpus);
}

}  // namespace

Progress& Progress::of_process() {
  static Progress instance;
  return instance;
}

Progress::~Progress() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Progress::start(CommunicatorState const& state) {
  std::lock_guard const lock(mutex_);
  start_locked(state);
}

void Progress::start_locked(CommunicatorState const& state) {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this, node = state.plan.ranks[static_cast<std::size_t>(state.rank)].node] {
      stay_near(node);
      serve();
    });
  } catch (std::system_error const& error) {
    throw SystemError(std::string("davit: the thread that gets on with open calls cannot be started: ") + error.what());
  }
}

void Progress::add(CommunicatorState& state) {
  {
    std::lock_guard const lock(mutex_);
    start_locked(state);
    if (std::find(open_.begin(), open_.end(), &state) == open_.end()) open_.push_back(&state);
    open_count_ = static_cast<int>(open_.size());
  }
  changed_.notify_all();
}

void Progress::remove(CommunicatorState& state) noexcept {
  std::lock_guard const lock(mutex_);
  std::erase(open_, &state);
  open_count_ = static_cast<int>(open_.size());
}

bool Progress::poke_all(CommunicatorState const& except) noexcept {
  if (open_count_.load(std::memory_order_relaxed) == 0) return false;
  std::unique_lock const lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  bool moved = false;
  for (auto* const state : open_) {
    if (state != &except) moved = state->poke() == CommunicatorState::Poked::moved || moved;
  }
  return moved;
}

void Progress::serve() {
  Backoff backoff(Eagerness::rest);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (open_.empty()) {
      changed_.wait(lock, [this] { return stop_ || !open_.empty(); });
      continue;
    }
    bool moved = false;
    std::erase_if(open_, [&moved](CommunicatorState* state) {
      auto const poked = state->poke();
      moved = moved || poked == CommunicatorState::Poked::moved;
      return poked == CommunicatorState::Poked::idle;
    });
    open_count_ = static_cast<int>(open_.size());
    if (waiting_.load(std::memory_order_relaxed) > 0) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    } else if (moved) {
      backoff.moved();
    } else {
      lock.unlock();
      backoff.idle();
      lock.lock();
    }
  }
}

}  // namespace davit::detail
