// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks with a GPU and a stream each. Ranks share nothing but their communicator, since they may be processes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/access.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/memory.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {

/// Slots that no exchange of these tests fits into.
inline Making small_slots() {
  Making making;
  making.options.slot_bytes = 4096;
  making.options.slots = 1;
  return making;
}

/// The same, with little time.
inline Making impatient() {
  auto making = small_slots();
  making.options.timeout = stretched(std::chrono::milliseconds(300));
  making.options.first_timeout = stretched(std::chrono::seconds(10));
  return making;
}

/// What a call raises, in words; "nothing raised".
template <class Call>
std::string what_of(Call&& call) {
  try {
    call();
    return "nothing raised";
  } catch (...) {
    return text_of(std::current_exception());
  }
}

/// Runs `play` with a prepared communicator whose ranks have chosen a GPU each, where their buffers lie.
inline void run_on_streams(int ranks, Making const& making,
                           std::function<void(int, Communicator&, TestStream&)> const& play) {
  keep_on_devices();
  run_ranks(ranks, making, [&](int rank, Communicator& comm) {
    comm.prepare();
    auto const stream = test_device().make_stream();
    play(rank, comm, *stream);
  });
}

/// Whether all that is enqueued is soon said to be done.
inline bool await_status(Communicator& comm) {
  auto const end = std::chrono::steady_clock::now() + stretched(std::chrono::seconds(10));
  while (!comm.status()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

/// Two arrays on a GPU that are sent back and forth: block i goes to rank i, what came is sent on by the next call.
/// After an even number of calls each rank has what it began with.
class Ring {
 public:
  Ring(Communicator const& comm, std::int64_t count)
      : ranks_(static_cast<std::size_t>(comm.size())), count_(count), counts_(ranks_, count) {
    bytes_ = ranks_ * static_cast<std::size_t>(count) * sizeof(std::int32_t);
    memory_ = test_device().backend().device_memory(comm.device(), 2 * bytes_);
    std::vector<std::int32_t> values;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
      displs_.push_back(static_cast<std::int64_t>(peer) * count);
      for (std::int64_t i = 0; i < count; ++i) values.push_back(value(comm.rank(), static_cast<int>(peer), i));
    }
    test_device().write(memory_.get(), bytes_of(values));
  }

  void enqueue(Communicator& comm, TestStream& stream) { enqueue(comm, Stream(stream.handle())); }
  void enqueue(Communicator& comm, Stream stream) {
    auto* const from = memory_.get() + (calls_ % 2 == 0 ? 0 : bytes_);
    auto* const to = memory_.get() + (calls_ % 2 == 0 ? bytes_ : 0);
    comm.alltoallv(from, counts_, displs_, i32, to, counts_, displs_, i32, stream);
    ++calls_;
  }

  void check(int rank, int calls) const {
    std::vector<std::int32_t> got(bytes_ / sizeof(std::int32_t));
    test_device().read(std::as_writable_bytes(std::span(got)), memory_.get() + (calls % 2 == 0 ? 0 : bytes_));
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
      for (std::int64_t i = 0; i < count_; ++i) {
        auto const at = peer * static_cast<std::size_t>(count_) + static_cast<std::size_t>(i);
        auto const other = static_cast<int>(peer);
        ASSERT_EQ(got[at], calls % 2 == 0 ? value(rank, other, i) : value(other, rank, i)) << "rank " << rank;
      }
    }
  }

 private:
  static std::int32_t value(int from, int to, std::int64_t i) {
    return static_cast<std::int32_t>(1000000 * from + 100000 * to + i);
  }

  std::size_t ranks_;
  std::int64_t count_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> displs_;
  std::size_t bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
  int calls_ = 0;
};

}  // namespace davit::test
