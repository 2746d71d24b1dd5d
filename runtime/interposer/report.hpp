// SPDX-License-Identifier: Apache-2.0
/// @file
/// What DAVIT_MPI_VERBOSE=1 tells of a communicator.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/interposer/switches.hpp"

namespace davit::drop_in {

/// Of the calls of one kind on one communicator.
struct Calls {
  std::uint64_t taken = 0;
  std::uint64_t passed_on = 0;
  std::uint64_t early = 0;  ///< of those: nonblocking, before davit's communicator was made
  std::uint64_t bytes = 0;  ///< sent and received
  double seconds = 0;       ///< blocking: inside the call; nonblocking: from the start to the completion
  std::uint64_t sampled = 0;
  double sampled_davit = 0;  ///< seconds
  double sampled_mpi = 0;
};

using Clock = std::chrono::steady_clock;

class Tally {
 public:
  /// A call may end on another thread than the one that begins the next.
  template <class Change>
  void change(Kind kind, Change const& change) {
    std::lock_guard const held(mutex_);
    change(calls_[static_cast<std::size_t>(kind)]);
  }
  /// To stderr, if there were calls. @param reason why MPI does the calls, if it does
  void print(int ranks, std::string const& reason) const;

 private:
  std::mutex mutex_;
  std::array<Calls, kinds> calls_{};
};

}  // namespace davit::drop_in
