// SPDX-License-Identifier: Apache-2.0
/// @file
/// A piece of collective work on one rank, advanced by whoever waits: the caller, another waiting call of the process,
/// or the helper thread. The tasks of a communicator run one after the other, in call order.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace davit::detail {

class CommunicatorState;

class Task {
 public:
  virtual ~Task() = default;
  Task(Task const&) = delete;
  Task& operator=(Task const&) = delete;

  /// Gets on with what can be done now; never waits. Called under the communicator's lock.
  /// @returns whether the task is complete. @throws what fails the communicator for good; an error that only voids the
  /// call goes into `error`.
  virtual bool advance() = 0;
  /// Whether the last advance() got anything done, so that waiting longer is pointless.
  [[nodiscard]] bool moved() const noexcept { return moved_; }
  /// Appends the peers that advance() waits for.
  virtual void awaited(std::vector<int>& peers) const = 0;
  /// Whether a GPU works on the caller's buffers, outside of any stream of the program.
  [[nodiscard]] virtual bool uses_device() const noexcept { return false; }
  /// Whether it waits for calls that are enqueued on streams of the program.
  [[nodiscard]] virtual bool waits_for_streams() const noexcept { return false; }
  /// Whether its rank stays until what it takes in for others of the call has come; see CommunicatorState.
  [[nodiscard]] virtual bool stays_for_others() const noexcept { return true; }
  /// Where it stands, for messages: "dispatch".
  [[nodiscard]] virtual std::string phase() const = 0;

  std::uint32_t number = 0;                          ///< of the call
  std::weak_ptr<CommunicatorState> home{};           ///< of a task that a Request waits for
  std::chrono::steady_clock::time_point deadline{};  ///< set when a wait first looks after the head of the queue
  std::exception_ptr error;                          ///< read only after `done`
  std::atomic<bool> done{false};
  bool settled = false;  ///< nothing more will be sent for it, and other nodes have been told

 protected:
  Task() = default;
  bool moved_ = false;
};

}  // namespace davit::detail
