// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls on streams beside a failure, a full launch queue, a full ring of cards. GPUs are stand-ins.
#include <gtest/gtest.h>

#include "davit/error.hpp"
#include "davit/expert_group.hpp"
#include "tests/runtime/streams.hpp"
#include "tests/support/stand_in.hpp"

namespace davit::test {
namespace {

using std::chrono::milliseconds;

/// The helper thread fails the communicator while a call is being made.
TEST(StreamEdges, ACallBesideAFailure) {
  ExpertGroupOptions base{.experts = 2, .top_k = 1, .hidden = 8, .max_tokens = 4, .dtype = f32};
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    auto options = base;
    std::shared_ptr<std::byte> mine;
    options.device_allocator.allocate = [&](std::size_t bytes) -> void* {
      while (comm.usable()) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(50));  // the helper has let go
      mine = test_device().backend().device_memory(comm.device(), bytes);
      return mine.get();
    };
    options.device_allocator.deallocate = [](void*, std::size_t) {};
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const ids{0, 1};
    std::vector<float> const weights{1, 1};
    auto routing = group.route(ids, weights);
    Memory const x(std::size_t{2} * 8 * sizeof(float));
    if (rank == 1) {
      meet(comm);
      return;
    }
    Ring ring(comm, 5000);
    ring.enqueue(comm, stream);  // rank 1 never joins: the helper thread fails it
    DispatchOptions dispatch;
    dispatch.stream = Stream(stream.handle());
    auto const text = what_of([&] { static_cast<void>(group.dispatch(routing, x.data(), dispatch)); });
    EXPECT_NE(text.find("TimeoutError"), std::string::npos) << text;
    EXPECT_TRUE(StandInStream::of(stream.handle()).drain(milliseconds(3000))) << "the user's stream waits for ever";
    meet(comm);
  });
}

/// What begins a call may block as well as what it submits.
class StreamFull : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, StreamFull, testing::Values(1, 2, 3, 4, 5, 6, 7, 8));
TEST_P(StreamFull, QueueWhereACallBegins) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    if (rank == 1) {
      meet(comm);
      return;
    }
    Ring ring(comm, 1024 * GetParam());
    auto const text = what_of([&] {
      for (int call = 0; call < 60; ++call) ring.enqueue(comm, stream);
      for (;;) static_cast<void>(comm.status());
    });
    EXPECT_NE(text.find("TimeoutError"), std::string::npos) << text;
    meet(comm);
  });
}

/// Barriers must not give back cards that nobody has read.
class StreamCards : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, StreamCards, testing::Values(40, 70, 200));
TEST_P(StreamCards, UnderBarriers) {
  auto making = small_slots();
  making.options.timeout = stretched(milliseconds(2000));
  making.limit = milliseconds(60000);
  run_on_streams(2, making, [&](int rank, Communicator& comm, TestStream& stream) {
    for (int round = 0; round < fewer(10); ++round) {
      Ring ring(comm, 10);
      ring.enqueue(comm, stream);
      for (int i = 0; i < GetParam(); ++i) comm.barrier();
      auto const text = what_of([&] {
        while (!comm.status()) std::this_thread::yield();
      });
      ASSERT_EQ(text, "nothing raised") << "rank " << rank << " round " << round;
      ring.check(rank, 1);
    }
  });
}

}  // namespace
}  // namespace davit::test
