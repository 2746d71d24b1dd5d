// SPDX-License-Identifier: Apache-2.0
/// @file
/// Received rows and the streams that read them. GPUs are stand-ins.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "davit/expert_group.hpp"
#include "tests/runtime/streams.hpp"
#include "tests/support/stand_in.hpp"

namespace davit::test {
namespace {

using std::chrono::milliseconds;

/// Rows that are dropped while their stream reads them stay until it has.
TEST(StreamMemory, DroppedRowsAreStillRead) {
  ExpertGroupOptions const options{.experts = 2, .top_k = 1, .hidden = 1024, .max_tokens = 4, .dtype = f32};
  run_on_streams(2, small_slots(), [&](int, Communicator& comm, TestStream& stream) {
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const ids{0, 1};
    std::vector<float> const weights{1, 1};
    auto routing = group.route(ids, weights);
    std::vector<float> const ones(std::size_t{2} * 1024, 1.0F);
    Memory const x(bytes_of(ones));
    std::vector<float> seen(ones.size(), -1.0F);
    DispatchOptions dispatch;
    dispatch.stream = Stream(stream.handle());
    {
      auto const received = group.dispatch(routing, x.data(), dispatch);
      stream.pass(milliseconds(500));
      // An expert's kernel, on the dispatch's own stream.
      auto const* const rows = StandIn::of_process().seen_by_host(received.data());
      StandInStream::of(stream.handle()).submit([&seen, rows] {
        std::memcpy(seen.data(), rows, seen.size() * sizeof(float));
        return true;
      });
    }
    ASSERT_TRUE(await_status(comm));
    // Any other call, here one that sets blocks aside.
    std::vector<float> const twos(2048, 2.0F);
    Memory const other(bytes_of(twos));
    std::vector<std::int64_t> const counts(2, 1024);
    std::vector<std::int64_t> const displs{0, 1024};
    comm.alltoallv(in_place, {}, {}, f32, other.data(), counts, displs, f32);
    ASSERT_TRUE(stream.drain());
    for (auto const value : seen) ASSERT_EQ(value, 1.0F);
  });
}

/// The user's allocator is only ever called by the user's threads, and may ask the communicator.
TEST(StreamMemory, AHookThatAsksTheCommunicator) {
  run_on_streams(2, impatient(), [&](int, Communicator& comm, TestStream& stream) {
    ExpertGroupOptions options{.experts = 2, .top_k = 1, .hidden = 8, .max_tokens = 4, .dtype = f32};
    auto const me = std::this_thread::get_id();
    std::shared_ptr<std::byte> memory;
    std::atomic<bool> elsewhere = false;
    options.device_allocator.allocate = [&](std::size_t bytes) -> void* {
      memory = test_device().backend().device_memory(comm.device(), bytes);
      return memory.get();
    };
    options.device_allocator.deallocate = [&](void*, std::size_t) {
      if (std::this_thread::get_id() != me) elsewhere = true;
      static_cast<void>(comm.stats());  // logs how much went through, say
    };
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const ids{0, 1};
    std::vector<float> const weights{1, 1};
    auto routing = group.route(ids, weights);
    Memory const x(std::size_t{2} * 8 * sizeof(float));
    DispatchOptions dispatch;
    dispatch.stream = Stream(stream.handle());
    static_cast<void>(group.dispatch(routing, x.data(), dispatch));  // dropped
    ASSERT_TRUE(stream.drain());
    std::this_thread::sleep_for(milliseconds(200));
    ASSERT_TRUE(await_status(comm));
    EXPECT_FALSE(elsewhere);
  });
}

}  // namespace
}  // namespace davit::test
