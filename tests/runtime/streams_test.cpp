// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls on streams: order, overwritten inputs, many at once, mixed with calls without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/runtime/streams.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/limits.hpp"

namespace davit::test {
namespace {

class Streams : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static int ranks() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, Streams, testing::Values(1, 2, 3, 4, 8));

/// 100 calls back to back, each of what the one before brought, without the host between.
TEST_P(Streams, ManyCallsWithoutTheHost) {
  auto making = small_slots();
  run_on_streams(ranks(), making, [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 3000);
    for (int call = 0; call < fewer(100); ++call) ring.enqueue(comm, stream);
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    ring.check(rank, fewer(100));
  });
}

/// allgatherv, then reduce_scatterv of what came, in turn, each of what the one before brought: rank r's block holds
/// r + 1 and doubles, trebles ... by the sum over the ranks. Short blocks of slots that are shorter still, and blocks
/// so long that they pass through packed memory of the GPU.
TEST_P(Streams, DenseFormsBackToBack) {
  for (bool const is_long : {false, true}) {
    auto making = small_slots();
    if (is_long) making.options.slot_bytes = 256 << 10;
    run_on_streams(ranks(), making, [&](int rank, Communicator& comm, TestStream& stream) {
      auto const n = static_cast<std::size_t>(comm.size());
      std::vector<std::int64_t> counts;
      std::vector<std::int64_t> displs;
      std::int64_t total = 0;
      for (std::size_t peer = 0; peer < n; ++peer) {
        counts.push_back((is_long ? 90000 : 1500) + 7 * static_cast<std::int64_t>(peer));
        displs.push_back(total);
        total += counts.back();
      }
      auto const mine = counts[static_cast<std::size_t>(rank)];
      auto const own = static_cast<std::size_t>(mine) * sizeof(float);
      auto const all = static_cast<std::size_t>(total) * sizeof(float);
      auto const memory = test_device().backend().device_memory(comm.device(), own + all + 256);
      auto* const block = memory.get();
      auto* const gathered = memory.get() + (own + 255) / 256 * 256;
      std::vector<float> const values(static_cast<std::size_t>(mine), static_cast<float>(rank + 1));
      test_device().write(block, bytes_of(values));
      Stream const on(stream.handle());
      constexpr int rounds = 4;
      for (int round = 0; round < rounds; ++round) {
        comm.allgatherv(block, mine, f32, gathered, counts, displs, f32, on);
        bool const in_place_here = round == rounds - 1;  // the result comes where this rank's block of the input was
        if (in_place_here && rank == 0) {
          comm.reduce_scatterv(in_place, gathered, counts, f32, on);
        } else {
          comm.reduce_scatterv(gathered, block, counts, f32, on);
        }
      }
      ASSERT_TRUE(stream.drain());
      EXPECT_TRUE(await_status(comm));
      std::vector<float> got(values.size());
      test_device().read(std::as_writable_bytes(std::span(got)), rank == 0 ? gathered : block);
      auto expected = static_cast<float>(rank + 1);
      for (int round = 0; round < rounds; ++round) expected *= static_cast<float>(n);
      for (auto const value : got) ASSERT_EQ(value, expected) << "rank " << rank;
    });
  }
}

/// The input is another's as soon as the stream has come so far.
TEST_P(Streams, InputIsOverwrittenRightAfter) {
  run_on_streams(ranks(), small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    auto const n = static_cast<std::size_t>(comm.size());
    std::size_t const count = 2500;
    auto const bytes = n * count * sizeof(std::int32_t);
    auto const memory = test_device().backend().device_memory(comm.device(), (1 + 20) * bytes);
    std::vector<std::int64_t> const counts(n, count);
    std::vector<std::int64_t> displs;
    for (std::size_t peer = 0; peer < n; ++peer) displs.push_back(static_cast<std::int64_t>(peer * count));
    for (std::int32_t call = 0; call < 20; ++call) {
      auto* const send = memory.get();
      std::vector<std::int32_t> const values(n * count, 100 * call + rank);
      auto const data = bytes_of(values);
      stream.write(send, {data.begin(), data.end()});
      comm.alltoallv(send, counts, displs, i32, memory.get() + static_cast<std::size_t>(1 + call) * bytes, counts,
                     displs, i32, Stream(stream.handle()));
    }
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    for (std::int32_t call = 0; call < 20; ++call) {
      std::vector<std::int32_t> got(n * count);
      test_device().read(std::as_writable_bytes(std::span(got)),
                         memory.get() + static_cast<std::size_t>(1 + call) * bytes);
      for (std::size_t at = 0; at < got.size(); ++at) {
        ASSERT_EQ(got[at], 100 * call + static_cast<std::int32_t>(at / count)) << "call " << call;
      }
    }
  });
}

/// Random exchanges, some on the stream, some not, some in host memory, in place or not.
TEST_P(Streams, MixedWithCallsWithout) {
  run_on_streams(ranks(), small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    Random same(5);
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<std::unique_ptr<test::Buffers>> open;
    for (int round = 0; round < fewer(60); ++round) {
      bool const in_place = same.chance(0.3);
      auto matrix = random_matrix(same, ranks(), {4096, 32768, 20000});
      if (in_place) matrix = made_symmetric(std::move(matrix), ranks());
      exchanges.push_back(std::make_unique<Exchange>(same, ranks(), std::move(matrix)));
      open.push_back(std::make_unique<test::Buffers>(*exchanges.back(), rank, in_place));
      auto const form = same.between(0, 3);
      if (form > 0) {
        open.back()->enqueue(comm, Stream(stream.handle()));
        continue;
      }
      open.back()->run(comm);  // answers for all before it
      for (auto const& buffers : open) buffers->check("round " + std::to_string(round));
      open.clear();
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    for (auto const& buffers : open) buffers->check("at the end");
  });
}

/// What the stream holds before the call has its time, however long.
TEST(StreamOrder, EarlierWorkTakesAsLongAsItTakes) {
  auto making = small_slots();
  making.options.timeout = stretched(std::chrono::milliseconds(200));
  making.options.first_timeout = stretched(std::chrono::seconds(10));
  run_on_streams(2, making, [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 100);
    stream.pass(stretched(std::chrono::milliseconds(600)));
    ring.enqueue(comm, stream);
    EXPECT_FALSE(comm.status());
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    ring.check(rank, 1);
  });
}

TEST(StreamOrder, DestroyingWaitsForWhatIsEnqueued) {
  run_on_streams(3, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 5000);
    for (int call = 0; call < 10; ++call) ring.enqueue(comm, stream);
    comm = Communicator();
    ASSERT_TRUE(stream.drain());
    ring.check(rank, 10);
  });
}

TEST(StreamOrder, OneRankOnAStreamTheOtherNot) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    Random same(9);
    for (int round = 0; round < 20; ++round) {
      Exchange const exchange(same, 2, random_matrix(same, 2, {4096, 32768, 20000}));
      test::Buffers buffers(exchange, rank);
      if (rank == 0) {
        buffers.enqueue(comm, Stream(stream.handle()));
        ASSERT_TRUE(stream.drain());
        EXPECT_TRUE(await_status(comm));
      } else {
        buffers.run(comm);
      }
      buffers.check("round " + std::to_string(round));
    }
  });
}

TEST(StreamKernels, NoneForContiguousBlocks) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 5000);
    ring.enqueue(comm, stream);
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    ring.check(rank, 1);
    EXPECT_EQ(davit::detail::Access::state(comm).device->device_engine().launches(), 0U);
  });
}

TEST(StreamArguments, AreCheckedBeforeAnythingMoves) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    std::vector<std::int64_t> const counts{1, 1};
    std::vector<std::int64_t> const displs{0, 1};
    std::int32_t pageable[4] = {};
    auto const text = raised<UsageError>([&] {
      comm.alltoallv(pageable, counts, displs, i32, pageable + 2, counts, displs, i32, Stream(stream.handle()));
    });
    expect_parts(text, {"is host memory that the GPU cannot reach", "a stream is given"});
    Ring ring(comm, 10);
    ring.enqueue(comm, stream);
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    ring.check(rank, 1);
  });
}

}  // namespace
}  // namespace davit::test
