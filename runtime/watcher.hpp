// SPDX-License-Identifier: Apache-2.0
/// @file
/// The thread that looks after GPUs: streams do not expire, and whoever hands them work may block in the driver. It
/// never submits, and takes no communicator's lock, so nothing that it watches can stop it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "transports/device_backend.hpp"

namespace davit::detail {

class CommunicatorState;

class Watcher {
 public:
  static Watcher& of_process();
  ~Watcher();
  Watcher(Watcher const&) = delete;
  Watcher& operator=(Watcher const&) = delete;

  /// @throws SystemError if there is no thread to be had.
  void start();
  /// `state` has a GPU; after start().
  void add(CommunicatorState& state);
  /// After this the watcher does not touch `state` any more.
  void remove(CommunicatorState& state) noexcept;
  /// An abandoned engine that has not run out and what it uses: both stay to the process's end, and its holds are
  /// released until it has.
  void leave(DeviceEngine& engine, std::shared_ptr<void> used);

 private:
  Watcher() = default;
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommunicatorState*> watched_;
  std::vector<std::pair<DeviceEngine*, std::shared_ptr<void>>>& left_ =
      *new std::vector<std::pair<DeviceEngine*, std::shared_ptr<void>>>;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace davit::detail
