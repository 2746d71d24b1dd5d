// SPDX-License-Identifier: Apache-2.0
/// @file
/// Every rank in its own way: on the host, on the GPU, on a stream, nonblocking; with calls that are refused between.
#include <gtest/gtest.h>

#include <vector>

#include "tests/runtime/streams.hpp"
#include "tests/support/random.hpp"

namespace davit::test {
namespace {

using std::chrono::milliseconds;

class StreamsMixed : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StreamsMixed, testing::Values(1, 2, 3, 5));
TEST_P(StreamsMixed, InAllWays) {
  auto making = small_slots();
  making.start = {0xffffffe0U, 0xfffffff0U};
  making.limit = milliseconds(100000);
  run_on_streams(GetParam(), making, [&](int rank, Communicator& comm, TestStream& stream) {
    Random same(77);
    Random mine(1000 + static_cast<std::uint64_t>(rank));
    auto const n = static_cast<std::size_t>(comm.size());
    struct Open {
      std::vector<std::int32_t> host_send, host_recv;
      std::shared_ptr<std::byte> gpu;
      std::int64_t count;
      bool on_gpu;
      Request request;
      int round;
    };
    std::vector<std::unique_ptr<Open>> open;
    auto const value = [](int round, int from, int to, std::int64_t i) {
      return static_cast<std::int32_t>(round * 100000 + from * 10000 + to * 1000 + i % 1000);
    };
    auto const check = [&](Open& o) {
      auto got = o.host_recv;
      if (o.on_gpu) {
        test_device().read(std::as_writable_bytes(std::span(got)), o.gpu.get() + got.size() * 4);
      }
      for (std::size_t from = 0; from < n; ++from) {
        for (std::int64_t i = 0; i < o.count; ++i) {
          ASSERT_EQ(got[from * static_cast<std::size_t>(o.count) + static_cast<std::size_t>(i)],
                    value(o.round, static_cast<int>(from), rank, i))
              << "round " << o.round;
        }
      }
    };
    for (int round = 0; round < 300; ++round) {
      auto const count = same.between(0, 5) == 0 ? 0 : static_cast<std::int64_t>(same.between(1, 3000));
      auto const kind = same.between(0, 9);
      if (kind == 0) {  // somebody refuses a blocking call
        int const who = static_cast<int>(same.between(0, static_cast<int>(n) - 1));
        std::vector<std::int64_t> const counts(n, 0);
        std::vector<std::int64_t> const bad(n, -1);
        auto const text = what_of(
            [&] { comm.alltoallv(nullptr, rank == who ? bad : counts, counts, i32, nullptr, counts, counts, i32); });
        EXPECT_NE(text, "nothing raised");
        continue;
      }
      if (kind == 1) {
        comm.barrier();
        continue;
      }
      auto o = std::make_unique<Open>();
      o->count = count;
      o->round = round;
      o->host_send.resize(n * static_cast<std::size_t>(count));
      o->host_recv.resize(o->host_send.size());
      for (std::size_t to = 0; to < n; ++to) {
        for (std::int64_t i = 0; i < count; ++i) {
          o->host_send[to * static_cast<std::size_t>(count) + static_cast<std::size_t>(i)] =
              value(round, rank, static_cast<int>(to), i);
        }
      }
      auto const how = mine.between(0, 4);
      o->on_gpu = how >= 2;
      std::vector<std::int64_t> const counts(n, count);
      std::vector<std::int64_t> displs;
      for (std::size_t to = 0; to < n; ++to) displs.push_back(static_cast<std::int64_t>(to) * count);
      void* send = o->host_send.data();
      void* recv = o->host_recv.data();
      if (o->on_gpu) {
        o->gpu = test_device().backend().device_memory(comm.device(), 8 * o->host_send.size() + 8);
        test_device().write(o->gpu.get(), bytes_of(o->host_send));
        send = o->gpu.get();
        recv = o->gpu.get() + 4 * o->host_send.size();
      }
      if (how == 0 || how == 2) {
        comm.alltoallv(send, counts, displs, i32, recv, counts, displs, i32);
      } else if (how == 1 || how == 3) {
        o->request = comm.ialltoallv(send, counts, displs, i32, recv, counts, displs, i32);
      } else {
        comm.alltoallv(send, counts, displs, i32, recv, counts, displs, i32, Stream(stream.handle()));
      }
      open.push_back(std::move(o));
      if (mine.between(0, 20) == 0) {
        for (auto& each : open) each->request.wait();
        ASSERT_TRUE(stream.drain());
        ASSERT_TRUE(await_status(comm)) << round;
        for (auto& each : open) check(*each);
        open.clear();
      }
    }
    for (auto& each : open) each->request.wait();
    ASSERT_TRUE(stream.drain());
    ASSERT_TRUE(await_status(comm));
    for (auto& each : open) check(*each);
  });
}

}  // namespace
}  // namespace davit::test
