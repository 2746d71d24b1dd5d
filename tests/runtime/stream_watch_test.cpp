// SPDX-License-Identifier: Apache-2.0
/// @file
/// Submissions and waits that take long, for good and for bad reasons, and who is held up by them. GPUs are stand-ins.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "davit/error.hpp"
#include "davit/expert_group.hpp"
#include "tests/runtime/arguments.hpp"
#include "tests/runtime/streams.hpp"
#include "tests/support/stand_in.hpp"

namespace davit::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Keeps a stream from going on until `flag`.
void block(TestStream& stream, std::atomic<bool> const& flag) {
  StandInStream::of(stream.handle()).submit([&flag] { return flag.load(); });
}

/// A nonblocking call on a GPU is submitted by the helper thread.
TEST(StreamWatch, TheHelperIsStuckInASubmission) {
  std::atomic<bool> go = false;
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    if (rank == 1) {
      block(stream, go);
      Ring ring(comm, 1000000);
      std::thread other([&] {  // it is in the queue's way itself
        try {
          ring.enqueue(comm, stream);
        } catch (Error const&) {
        }
      });
      meet(comm);
      go = true;
      other.join();
      return;
    }
    Arguments arguments(comm, 1000000);
    auto request = arguments.post(comm);
    std::this_thread::sleep_for(milliseconds(200));
    auto const start = Clock::now();
    auto const text = what_of([&] { request.wait(); });
    EXPECT_NE(text.find("TimeoutError"), std::string::npos) << text;
    EXPECT_LT(Clock::now() - start, milliseconds(5000));
    meet(comm);
  });
}

/// In place: what is set aside is submitted before the rest.
TEST(StreamWatch, FullQueueWhereBlocksAreSetAside) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    if (rank == 1) {
      meet(comm);
      return;
    }
    auto const memory = test_device().backend().device_memory(comm.device(), 4096);
    std::vector<std::int64_t> const counts{0, 1};
    std::vector<std::int64_t> const displs{0, 0};
    auto const text = what_of([&] {
      for (int call = 0; call < 60; ++call) {
        comm.alltoallv(in_place, {}, {}, i32, memory.get(), counts, displs, i32, Stream(stream.handle()));
      }
      for (;;) static_cast<void>(comm.status());
    });
    EXPECT_NE(text.find("TimeoutError"), std::string::npos) << text;
    meet(comm);
  });
}

/// Work of the program before a call takes as long as it takes, also where it fills the queue.
TEST(StreamWatch, EarlierWorkAndAFullQueue) {
  auto making = impatient();
  run_on_streams(2, making, [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 1000000);
    stream.pass(3 * making.options.timeout);  // on both
    auto const text = what_of([&] { ring.enqueue(comm, stream); });
    EXPECT_EQ(text, "nothing raised");
    EXPECT_TRUE(stream.drain());
    if (text == "nothing raised") {
      EXPECT_TRUE(await_status(comm));
      ring.check(rank, 1);
    }
  });
}

/// The same, then a call without a stream.
TEST(StreamWatch, EarlierWorkThenABlockingCall) {
  auto making = impatient();
  run_on_streams(2, making, [&](int, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 100);
    stream.pass(3 * making.options.timeout);  // on both
    ring.enqueue(comm, stream);
    Arguments arguments(comm, 10);
    auto const text = what_of([&] { arguments.run(comm); });
    EXPECT_EQ(text, "nothing raised");
  });
}

/// Nothing is held up, so holds do not show that it moves.
TEST(StreamWatch, ABusyGpuOfOneRank) {
  auto making = small_slots();
  making.options.timeout = stretched(milliseconds(100));
  run_on_streams(1, making, [&](int, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 1 << 20);
    auto const text = what_of([&] {
      for (int call = 0; call < 600; ++call) ring.enqueue(comm, stream);
    });
    EXPECT_EQ(text, "nothing raised");
    EXPECT_TRUE(stream.drain());
  });
}

/// status() never waits, not even for a GPU that is let go of.
TEST(StreamWatch, StatusNeverWaits) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    stream.pass(milliseconds(3000));
    Ring ring(comm, rank == 0 ? 100 : 90);
    ring.enqueue(comm, stream);
    auto longest = Clock::duration::zero();
    std::string text;
    auto const end = Clock::now() + milliseconds(5000);
    while (text.empty() && Clock::now() < end) {
      auto const start = Clock::now();
      try {
        static_cast<void>(comm.status());
        std::this_thread::sleep_for(milliseconds(1));
      } catch (Error const& error) {
        text = error.what();
      }
      longest = std::max(longest, Clock::now() - start);
    }
    EXPECT_LT(longest, milliseconds(500)) << text;
    EXPECT_TRUE(stream.drain());
  });
}

/// Nobody fails: each communicator has its own helper.
TEST(StreamWatch, NonblockingCallsOnTheGpuWhileTheProgramIsElsewhere) {
  std::atomic<bool> zero_has_all = false;
  run_on_streams(4, impatient(), [&](int rank, Communicator& comm, TestStream&) {
    Arguments arguments(comm, 500000);
    auto request = arguments.post(comm);
    if (rank == 0) {
      auto const text = what_of([&] { request.wait(); });
      EXPECT_EQ(text, "nothing raised");
      zero_has_all = true;
    } else {
      while (!zero_has_all) std::this_thread::sleep_for(milliseconds(1));
      request.wait();
    }
    arguments.check();
  });
}

/// Choices from the GPU while its queue is full.
TEST(StreamWatch, ChoicesBehindAFullQueue) {
  ExpertGroupOptions const options{.experts = 2, .top_k = 1, .hidden = 8, .max_tokens = 100, .dtype = f32};
  std::shared_ptr<std::byte> words;  // lanes look at it to their end
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream&) {
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const numbers(100, 0);
    Memory const ids(bytes_of(numbers));
    Memory const weights(bytes_of(numbers));
    auto const* const given = reinterpret_cast<float const*>(weights.data());
    if (rank == 1) {
      meet(comm);
      return;
    }
    // The lane that choices come by is filled to its end; in life earlier calls do that.
    auto& engine = davit::detail::Access::state(comm).device->device_engine();
    Counter never = 0;
    words = test_device().backend().pinned_memory(0, 4096);
    std::memcpy(words.get(), &never, sizeof never);
    for (int i = 0; i < 1024; ++i) {
      engine.submit(Lane::up, HoldOp{reinterpret_cast<Counter*>(words.get()), 1, 1, Awaited::data});
    }
    auto const text = what_of([&] { static_cast<void>(group.route(DeviceChoices{ids.data(), i32, given, 100})); });
    EXPECT_NE(text.find("TimeoutError"), std::string::npos) << text;
    meet(comm);
  });
}

/// Choices that come late find their memory still there.
TEST(StreamWatch, LateChoices) {
  std::atomic<bool> go = false;
  auto making = impatient();
  ExpertGroupOptions const options{.experts = 2, .top_k = 1, .hidden = 8, .max_tokens = 100000, .dtype = f32};
  run_on_streams(1, making, [&](int, Communicator& comm, TestStream& stream) {
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const numbers(100000, 0);
    Memory const ids(bytes_of(numbers));
    Memory const weights(bytes_of(numbers));
    auto const* const given = reinterpret_cast<float const*>(weights.data());
    block(stream, go);
    auto const first = what_of([&] {
      static_cast<void>(group.route(DeviceChoices{ids.data(), i32, given, 1000}, Stream(stream.handle())));
    });
    EXPECT_NE(first.find("TimeoutError"), std::string::npos) << first;
    EXPECT_FALSE(comm.usable()) << "error.hpp: after a TimeoutError the communicator is failed";
    auto const second = what_of([&] {
      static_cast<void>(group.route(DeviceChoices{ids.data(), i32, given, 100000}, Stream(stream.handle())));
    });
    go = true;
    EXPECT_TRUE(stream.drain());
    std::this_thread::sleep_for(milliseconds(300));
  });
}

/// A communicator that fails while a stream is busy holds up no other.
TEST(StreamWatch, OneFailureHoldsUpOthers) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    auto other = comm.dup();
    other.prepare();
    stream.pass(milliseconds(4000));
    Ring ring(comm, rank == 0 ? 100 : 90);
    ring.enqueue(comm, stream);  // a mismatch: the helper fails it
    std::this_thread::sleep_for(milliseconds(100));
    auto const start = Clock::now();
    std::vector<std::int64_t> const counts(2, 1);
    std::vector<std::int64_t> const displs{0, 1};
    Arguments arguments(other, 4);
    auto request = arguments.post(other);  // local
    EXPECT_LT(Clock::now() - start, milliseconds(500));
    request.wait();
    EXPECT_TRUE(stream.drain());
  });
}

}  // namespace
}  // namespace davit::test
