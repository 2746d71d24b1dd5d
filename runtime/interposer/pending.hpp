// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests of MPI that stand for calls of davit. To the program such a request is MPI's own: a generalized request,
/// or, for a persistent call, a persistent receive from nobody. The interposer sees every call that waits for requests;
/// it lets davit finish first, then completes the stand-in, then calls the MPI library. So nothing is called from
/// another thread than the program's, whatever the thread level.
#pragma once

#include <mpi.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "davit/request.hpp"
#include "runtime/interposer/attached.hpp"
#include "runtime/interposer/sides.hpp"

namespace davit::drop_in {

/// What a persistent call is given, kept.
class Kept {
 public:
  Kept(Given const& given, std::size_t blocks);
  ~Kept();
  Kept(Kept const&) = delete;
  Kept& operator=(Kept const&) = delete;
  [[nodiscard]] Given const& given() const noexcept { return given_; }

 private:
  Given given_;
  bool owns_datatype_ = false;
  std::vector<MPI_Count> counts_;
  std::vector<MPI_Aint> displs_;
};

class Pending {
 public:
  /// Posts a nonblocking call. @param code an MPI error class; if that is no success there is no request
  static std::shared_ptr<Pending> post(Attached& at, Kind kind, Given const& send, Given const& recv, int& code);
  /// Collective: makes a persistent call, on a communicator of its own, since the ranks may start such calls in any
  /// order.
  static std::shared_ptr<Pending> prepare(Attached& at, Kind kind, Given const& send, Given const& recv, int& code);
  Pending(Attached& at, Kind kind) : at_(at.shared_from_this()), kind_(kind) {}

  [[nodiscard]] MPI_Request handle() const noexcept { return handle_; }
  [[nodiscard]] bool persistent() const noexcept { return own_.has_value(); }
  [[nodiscard]] bool active() const noexcept { return sides_ != nullptr; }
  /// Starts a persistent call. @returns an MPI error class
  int start();
  /// Gets on, never waits. @returns whether davit is done; the stand-in is complete then.
  bool finish();
  /// Waits until that is so.
  void wait();
  /// Lets MPI get on: a peer may be stuck there before it comes to its part.
  void poke_mpi() const noexcept;
  /// Of the last completion, once; an MPI error class.
  [[nodiscard]] int take_code() noexcept { return std::exchange(code_, MPI_SUCCESS); }
  /// Tells the program's handler. @returns `code`
  int report(int code) const;
  /// Gives a stand-in that nobody will wait for back to the MPI library.
  void drop() noexcept;

 private:
  int begin(Communicator& davit, Given const& send, Given const& recv);

  std::shared_ptr<Attached> at_;
  Kind kind_;
  MPI_Request handle_{};
  std::optional<Communicator> own_;  ///< of a persistent call
  std::unique_ptr<Kept> send_;       ///< of a persistent call, as the next
  std::unique_ptr<Kept> recv_;
  std::unique_ptr<Sides> sides_;
  Request request_;
  int code_ = MPI_SUCCESS;
  Clock::time_point started_{};
};

/// All of the process.
class Pendings {
 public:
  static Pendings& of_process();

  /// Whether there is none, so that nobody has to look.
  [[nodiscard]] bool none() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }
  void add(std::shared_ptr<Pending> pending);
  /// The one behind a handle, or null.
  [[nodiscard]] std::shared_ptr<Pending> find(MPI_Request handle);
  /// Before the MPI library completes it, after which it may use the handle again.
  void remove(Pending const& pending);
  /// The program has freed the request; the call completes all the same.
  void detach(std::shared_ptr<Pending> pending);
  /// Gets on with those that nobody waits for.
  void sweep();
  /// At the end of MPI: waits for them, but not for long.
  void drain();

 private:
  std::mutex mutex_;
  std::map<MPI_Request, std::shared_ptr<Pending>> all_;
  std::vector<std::shared_ptr<Pending>> detached_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace davit::drop_in
