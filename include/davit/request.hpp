// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handles of work in flight: Request (one nonblocking call) and Plan (a persistent one, started again and again).
#pragma once

#include <memory>

#include "davit/export.hpp"

namespace davit {

namespace detail {
class Task;
class PlanState;
}  // namespace detail

/// One nonblocking call. Buffers belong to davit from the start until wait() returned or test() said true. Requests of
/// a communicator run in call order and may be waited for in any order. A helper thread progresses them meanwhile.
/// Dropping a Request detaches it, as MPI_Request_free does: the call still completes, its error is lost.
class DAVIT_EXPORT Request {
 public:
  Request() noexcept = default;
  Request(Request&&) noexcept = default;
  Request& operator=(Request&&) noexcept = default;
  Request(Request const&) = delete;
  Request& operator=(Request const&) = delete;
  ~Request() = default;

  /// Whether a call is attached that was not yet waited for.
  [[nodiscard]] bool active() const noexcept { return task_ != nullptr; }
  /// Local: waits until the call is complete and the buffers may be reused; on an inactive request nothing happens.
  /// @throws what the call met: see davit/error.hpp. The request is inactive afterwards in any case.
  void wait();
  /// Local, never waits: true if the call is complete; the request is then inactive. @throws as wait().
  [[nodiscard]] bool test();

 private:
  friend class Communicator;
  friend class Plan;
  explicit Request(std::shared_ptr<detail::Task> task) noexcept : task_(std::move(task)) {}
  std::shared_ptr<detail::Task> task_;
};

/// A persistent call: arguments are checked and agreed once, at the collective `*_init`; each start() takes its place
/// in the call order of the communicator, as a nonblocking call does, so all ranks must start it equally often.
class DAVIT_EXPORT Plan {
 public:
  Plan() noexcept = default;
  Plan(Plan&&) noexcept = default;
  Plan& operator=(Plan&&) noexcept = default;
  Plan(Plan const&) = delete;
  Plan& operator=(Plan const&) = delete;
  ~Plan() = default;

  /// Local: posts the call. @throws UsageError if the last start was not waited for.
  void start();
  /// As Request::wait, for the last start.
  void wait();
  /// As Request::test, for the last start.
  [[nodiscard]] bool test();

 private:
  friend class Communicator;
  explicit Plan(std::shared_ptr<detail::PlanState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<detail::PlanState> state_;
  Request request_;
};

}  // namespace davit
