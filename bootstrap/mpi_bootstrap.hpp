// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the MPI bootstrap waits in: MPI that can give up. An allgather goes point to point between all pairs, so that
/// whoever has not come has a name.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/group.hpp"
#include "davit/bootstrap.hpp"
#include "davit/error.hpp"

namespace davit::bootstrap {

/// A bootstrap that stands on MPI.
class OverMpi : public Bootstrap {
 public:
  /// A duplicate of its communicator, for whoever has messages of his own; the caller frees it. Collective.
  /// @throws as allgather.
  [[nodiscard]] virtual MPI_Comm duplicate(Deadline deadline) = 0;
};

// mpi.h spells its constants with C casts. They are named once here, so that the rest compiles without any.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
inline MPI_Comm const no_comm = MPI_COMM_NULL;
inline MPI_Comm const world = MPI_COMM_WORLD;
inline MPI_Comm const self = MPI_COMM_SELF;
inline MPI_Datatype const no_type = MPI_DATATYPE_NULL;
inline void const* const in_place_buffer = MPI_IN_PLACE;
inline MPI_Request const no_request = MPI_REQUEST_NULL;
inline MPI_Datatype const byte_type = MPI_BYTE;
inline MPI_Datatype const int_type = MPI_INT;
inline MPI_Datatype const float_type = MPI_FLOAT;
inline MPI_Op const sum = MPI_SUM;
inline MPI_Info const no_info = MPI_INFO_NULL;
inline MPI_Errhandler const errors_return = MPI_ERRORS_RETURN;
inline MPI_Status* const no_status = MPI_STATUS_IGNORE;
inline MPI_Status* const no_statuses = MPI_STATUSES_IGNORE;
#pragma GCC diagnostic pop

/// @throws SystemError with MPI's own words unless `code` is success. @param call the function that returned it
inline void check(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw SystemError("davit: " + std::string(call) + ": " +
                    (length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "unknown MPI error") +
                    " (code " + std::to_string(code) + ")");
}

/// Calls `is_done` until it is true or the deadline has passed: at once a few times, then yielding, then with naps that
/// grow to 1 ms, since ranks may outnumber cores. @return whether it became true
template <class IsDone>
bool poll(IsDone is_done, Deadline deadline) {
  constexpr int spins = 64;
  constexpr int yields = 128;
  std::chrono::microseconds nap{1};
  for (int turn = 0;; ++turn) {
    if (is_done()) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (turn < spins) continue;
    if (turn < spins + yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, std::chrono::microseconds{1000});
    }
  }
}

/// The messages of one round, in which every rank sends a block of the same length to every other. The bytes live here
/// and not at the caller: MPI may still write them after a time-out.
class Round {
 public:
  Round(MPI_Comm comm, int rank, int size, std::span<std::byte const> mine)
      : comm_(comm),
        rank_(rank),
        block_(mine.size()),
        bytes_(mine.size() * static_cast<std::size_t>(size)),
        receives_(static_cast<std::size_t>(size), no_request),
        sends_(receives_) {
    if (!mine.empty()) std::memcpy(block(rank), mine.data(), mine.size());
  }

  /// Starts all messages. Receives come first, and each rank begins with its successor, so that no rank is met by all.
  void post(int tag) {
    int const size = static_cast<int>(receives_.size());
    int const count = static_cast<int>(block_);
    for (int i = 1; i < size; ++i) {
      int const from = (rank_ + i) % size;
      check(MPI_Irecv(block(from), count, byte_type, from, tag, comm_, &receives_[index(from)]), "MPI_Irecv");
    }
    for (int i = 1; i < size; ++i) {
      int const to = (rank_ + i) % size;
      check(MPI_Isend(block(rank_), count, byte_type, to, tag, comm_, &sends_[index(to)]), "MPI_Isend");
    }
  }

  /// Tests what is under way, one by one: some MPIs take errors of the plural forms to the error handler of the world.
  /// @return whether all is done
  bool step() {
    bool is_done = true;
    for (auto* requests : {&receives_, &sends_}) {
      for (MPI_Request& request : *requests) {
        if (request == no_request) continue;
        int flag = 0;
        check(MPI_Test(&request, &flag, no_status), "MPI_Test");
        is_done = flag != 0 && is_done;
      }
    }
    return is_done;
  }

  /// Ranks that have not sent or not taken their message, rising.
  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < receives_.size(); ++r) {
      if (receives_[r] != no_request || sends_[r] != no_request) ranks.push_back(static_cast<int>(r));
    }
    return ranks;
  }

  /// Cancels and frees what is under way; local. Sends are not cancelled: few MPIs can, and some wait for the peer
  /// then.
  /// @return whether MPI is done with the bytes
  bool withdraw() noexcept {
    bool is_idle = true;
    for (auto* requests : {&receives_, &sends_}) {
      for (MPI_Request& request : *requests) {
        if (request == no_request) continue;
        if (requests == &receives_) MPI_Cancel(&request);
        int flag = 0;
        if (MPI_Test(&request, &flag, no_status) == MPI_SUCCESS && flag != 0) continue;
        if (request != no_request) MPI_Request_free(&request);
        is_idle = false;
      }
    }
    return is_idle;
  }

  /// All blocks, rank rising.
  [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return bytes_; }

 private:
  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }
  std::byte* block(int rank) noexcept { return bytes_.data() + index(rank) * block_; }

  MPI_Comm comm_;
  int rank_;
  std::size_t block_;
  std::vector<std::byte> bytes_;
  std::vector<MPI_Request> receives_;  // by peer, as sends_
  std::vector<MPI_Request> sends_;
};

/// Plays one round. @param tag differs from that of rounds whose messages may still be under way
inline void play_round(MPI_Comm comm, int rank, int size, int tag, std::span<std::byte const> mine,
                       std::span<std::byte> all, Deadline deadline) {
  auto round = std::make_unique<Round>(comm, rank, size, mine);
  try {
    round->post(tag);
    if (!poll([&] { return round->step(); }, deadline)) {
      auto const missing = round->missing();
      throw TimeoutError(did_not_come(missing, size), missing.front());
    }
  } catch (...) {
    // Bytes that MPI still holds are given up to it; there is no later moment at which they would surely be free.
    if (!round->withdraw()) static_cast<void>(round.release());
    throw;
  }
  if (!all.empty()) std::memcpy(all.data(), round->bytes().data(), all.size());
}

/// Rounds or barriers to be passed before an MPI call that cannot give up. A rank that comes late still finds what
/// those who gave up had sent for the first, but nothing of them for the second.
inline constexpr int rounds_of_agreement = 2;

/// One nonblocking call that makes a communicator, or only meets. MPI keeps it for good if it does not end.
struct Attempt {
  MPI_Request request = no_request;
  MPI_Comm copy = no_comm;
};

/// Waits for what `start` begins in an Attempt. @param who meets, and where, for the message
/// @throws TimeoutError, SystemError
template <class Start>
MPI_Comm finish(Start start, char const* call, char const* who, Deadline deadline) {
  auto attempt = std::make_unique<Attempt>();
  check(start(*attempt), call);
  Attempt* const pending = attempt.release();
  auto const is_done = [&] {
    int flag = 0;
    check(MPI_Test(&pending->request, &flag, no_status), call);
    return flag != 0;
  };
  if (!poll(is_done, deadline)) {
    throw TimeoutError("davit: " + std::string(who) + ": time-out in " + std::string(call) +
                           ": not all ranks of the communicator called " + std::string(who),
                       -1);
  }
  attempt.reset(pending);
  return attempt->copy;
}

/// To be passed before an MPI call that cannot give up. @throws TimeoutError, SystemError
inline void meet(MPI_Comm comm, char const* who, Deadline deadline) {
  for (int i = 0; i < rounds_of_agreement; ++i) {
    finish([&](Attempt& attempt) { return MPI_Ibarrier(comm, &attempt.request); }, "MPI_Ibarrier", who, deadline);
  }
}

/// MPI_Comm_dup with a deadline. Barriers come first: Open MPI makes no communicator at all while a duplication is
/// pending, so none must be started in vain. @throws TimeoutError, SystemError
inline MPI_Comm duplicate(MPI_Comm comm, Deadline deadline) {
  meet(comm, "davit::mpi", deadline);
  return finish([&](Attempt& attempt) { return MPI_Comm_idup(comm, &attempt.copy, &attempt.request); }, "MPI_Comm_idup",
                "davit::mpi", deadline);
}

}  // namespace davit::bootstrap
