// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators with open tasks, and the helper thread that gets on with them while the program is elsewhere. It also
/// looks after calls on streams, which nobody waits for. All communicators without a GPU share one. One with a GPU has
/// its own: getting on may block then, until peers have submitted as much, and these may be at another's calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace davit::detail {

class CommunicatorState;

class Progress {
 public:
  static Progress& of_process();
  Progress() = default;
  ~Progress();
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;

  /// Starts the thread, once, near the GPU or the CPUs of `state`. @throws SystemError.
  void start(CommunicatorState const& state);
  /// `state` has an open task. The thread sleeps while there is none. @throws as start().
  void add(CommunicatorState& state);
  /// After this no thread touches `state` any more.
  void remove(CommunicatorState& state) noexcept;
  /// Gets on with all open tasks of the process but those of `except`. @returns whether anything moved.
  bool poke_all(CommunicatorState const& except) noexcept;

  /// While one lives, a thread waits and pokes by itself, so the helper rests.
  class Waiting {
   public:
    explicit Waiting(Progress& progress) noexcept : count_(progress.waiting_) { ++count_; }
    ~Waiting() { --count_; }
    Waiting(Waiting const&) = delete;
    Waiting& operator=(Waiting const&) = delete;

   private:
    std::atomic<int>& count_;
  };

 private:
  void start_locked(CommunicatorState const& state);
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommunicatorState*> open_;
  std::atomic<int> open_count_{0};
  std::atomic<int> waiting_{0};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace davit::detail
