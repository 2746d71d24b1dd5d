// SPDX-License-Identifier: Apache-2.0
/// @file
/// What Stats counts: each byte where it went, exactly.
#include <gtest/gtest.h>

#include <cstring>

#include "davit/error.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/files.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

constexpr std::uint64_t kSlot = 4096;

Making with_path(Path path, HostOrder order = HostOrder::eager) {
  Making with;
  with.options.path = path;
  with.options.host_order = order;
  with.options.slot_bytes = kSlot;
  with.options.slots = 2;
  with.options.direct_bytes = 6000;
  return with;
}

std::uint64_t chunks(std::uint64_t bytes) { return (bytes + kSlot - 1) / kSlot; }

// From each rank to each of three.
Matrix const kMatrix{104, 0, 5000, 6000, 16, 12000, 8, 20000, 5992};

Stats stats_of(Making const& with, int of_rank, bool in_place = false) {
  Stats stats;
  run_ranks(3, with, [&](int rank, Communicator& comm) {
    Random same(1);
    Exchange const exchange(same, 3, in_place ? made_symmetric(kMatrix, 3) : kMatrix);
    Buffers buffers(exchange, rank, in_place);
    buffers.run(comm);
    buffers.check();
    if (rank == of_rank) stats = comm.stats();
  });
  return stats;
}

TEST(Stats, AlltoallvThroughSlots) {
  for (auto const& with : {with_path(Path::slots), with_path(Path::automatic, HostOrder::queues),
                           with_path(Path::automatic, HostOrder::submission)}) {
    auto const stats = stats_of(with, 1);
    EXPECT_EQ(stats.calls, 1U);
    EXPECT_EQ(stats.bytes_up, 6000U + 12000U);
    EXPECT_EQ(stats.bytes_down, 0U + 20000U);
    EXPECT_EQ(stats.bytes_direct, 0U);
    EXPECT_EQ(stats.bytes_kept, 16U);
    EXPECT_EQ(stats.chunks_up, chunks(6000) + chunks(12000));
    EXPECT_EQ(stats.bytes_cards, 2 * 64U);
    EXPECT_EQ(stats.rows_up + stats.rows_down + stats.rows_slack + stats.bytes_ids, 0U);
  }
}

TEST(Stats, AlltoallvAtTheThreshold) {
  if (pretended_nodes() > 1) GTEST_SKIP() << "the direct way is for ranks of a node";
  if (any_on_device()) GTEST_SKIP() << "a GPU's blocks never go direct";
  auto const with = with_path(Path::automatic);
  auto const zero = stats_of(with, 0);
  EXPECT_EQ(zero.bytes_up, 5000U);      // to rank 2; nothing goes to rank 1
  EXPECT_EQ(zero.bytes_direct, 6000U);  // from rank 1: at the threshold
  EXPECT_EQ(zero.bytes_down, 8U);
  EXPECT_EQ(zero.bytes_kept, 104U);
  EXPECT_EQ(zero.chunks_up, chunks(5000));
  auto const two = stats_of(with, 2);
  EXPECT_EQ(two.bytes_up, 8U);
  EXPECT_EQ(two.bytes_direct, 12000U);
  EXPECT_EQ(two.bytes_down, 5000U);
  EXPECT_EQ(two.bytes_kept, 5992U);
}

TEST(Stats, AlltoallvDirectAlways) {
  if (pretended_nodes() > 1) GTEST_SKIP() << "the direct way is for ranks of a node";
  if (any_on_device()) GTEST_SKIP() << "a GPU's blocks never go direct";
  auto const stats = stats_of(with_path(Path::direct), 0);
  EXPECT_EQ(stats.bytes_up, 0U);
  EXPECT_EQ(stats.bytes_down, 0U);
  EXPECT_EQ(stats.bytes_direct, 6000U + 8U);
  EXPECT_EQ(stats.bytes_kept, 104U);
  EXPECT_EQ(stats.chunks_up, 0U);
}

TEST(Stats, InPlaceKeepsNothing) {
  auto const stats = stats_of(with_path(Path::slots), 1, true);
  EXPECT_EQ(stats.bytes_kept, 0U);
  EXPECT_EQ(stats.bytes_up, 0U + 12000U);
  EXPECT_EQ(stats.bytes_down, 0U + 12000U);
}

TEST(Stats, AllgathervWritesOnceForAll) {
  if (pretended_nodes() > 1) GTEST_SKIP() << "the direct way is for ranks of a node";
  for (auto const path : {Path::slots, Path::direct}) {
    run_ranks(4, with_path(path), [&](int rank, Communicator& comm) {
      std::vector<std::int64_t> const counts{5000, 0, 100, 9000};
      std::vector<std::int64_t> const displs{0, 5000, 5000, 5100};
      std::vector<std::uint8_t> const send(9000);
      std::vector<std::uint8_t> recv(14100);
      auto const mine = counts[static_cast<std::size_t>(rank)];
      comm.allgatherv(send.data(), mine, u8, recv.data(), counts, displs, u8);
      auto const stats = comm.stats();
      auto const own = static_cast<std::uint64_t>(mine);
      bool const slots = path == Path::slots;
      EXPECT_EQ(stats.bytes_up, slots ? own : 0) << "once, however many read it";
      EXPECT_EQ(stats.chunks_up, slots ? chunks(own) : 0);
      EXPECT_EQ(stats.bytes_down, slots ? 14100 - own : 0);
      EXPECT_EQ(stats.bytes_direct, slots ? 0 : 14100 - own);
      EXPECT_EQ(stats.bytes_kept, own);
      EXPECT_EQ(stats.bytes_cards, 3 * 64U);
    });
  }
}

TEST(Stats, ReduceScattervPushesOthersBlocksOnly) {
  run_ranks(3, with_path(Path::automatic), [](int rank, Communicator& comm) {
    std::vector<std::int64_t> const counts{100, 0, 50};
    std::vector<float> const send(150, 1.0F);
    std::vector<float> recv(100);
    comm.reduce_scatterv(send.data(), recv.data(), counts, f32);
    auto const own = static_cast<std::uint64_t>(4 * counts[static_cast<std::size_t>(rank)]);
    auto const stats = comm.stats();
    EXPECT_EQ(stats.bytes_up, 600 - own);
    EXPECT_EQ(stats.bytes_down, 2 * own);
    EXPECT_EQ(stats.bytes_direct, 0U);
    EXPECT_EQ(stats.chunks_up, 1U);
  });
}

TEST(Stats, CountRefusedCallsAndBarriers) {
  run_ranks(2, [](int rank, Communicator& comm) {
    comm.prepare();
    auto const before = comm.stats();
    comm.barrier();
    comm.barrier();
    try {
      comm.alltoallv(nullptr, {}, {}, rank == 0 ? f32 : u8, nullptr, {}, {}, u8);
      ADD_FAILURE();
    } catch (UsageError const&) {
    }
    auto const stats = comm.stats();
    EXPECT_EQ(stats.calls, before.calls + 3);
    EXPECT_EQ(stats.bytes_cards, before.bytes_cards + 3 * 64);
    EXPECT_EQ(stats.bytes_up, 0U);
  });
}

// --- Memory that the node's ranks map.

TEST(SharedBuffers, SizesMayDifferAndMayBeZero) {
  run_ranks(3, [](int rank, Communicator& comm) {
    auto const bytes = static_cast<std::size_t>(rank) * 5000;
    auto buffer = comm.allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    if (rank == 0) return;
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U);
    std::memset(buffer.data(), 1, bytes);
    auto moved = std::move(buffer);
    EXPECT_EQ(moved.bytes(), bytes);
  });
}

TEST(SharedBuffers, AreExchangedAroundTheThreshold) {
  if (pretended_nodes() > 1) GTEST_SKIP() << "the direct way is for ranks of a node";
  for (auto const& with : {with_path(Path::automatic), with_path(Path::slots), with_path(Path::direct),
                           with_path(Path::automatic, HostOrder::queues)}) {
    run_ranks(3, with, [&](int rank, Communicator& comm) {
      auto send = comm.allocate(30000);
      auto recv = comm.allocate(30000);
      std::uint64_t direct = 0;
      for (std::int64_t const bytes : {1, 5999, 6000, 6001, 9000}) {
        std::vector<std::int64_t> const counts(3, bytes);
        std::vector<std::int64_t> const displs{0, bytes, 2 * bytes};
        for (int to = 0; to < 3; ++to)
          std::memset(send.data() + to * bytes, 1 + rank * 16 + to, static_cast<std::size_t>(bytes));
        std::memset(recv.data(), 0xFF, 30000);
        comm.alltoallv(send.data(), counts, displs, u8, recv.data(), counts, displs, u8);
        for (int from = 0; from < 3; ++from) {
          for (std::int64_t i = 0; i < bytes; ++i) {
            ASSERT_EQ(recv.data()[from * bytes + i], static_cast<std::byte>(1 + from * 16 + rank)) << bytes << " bytes";
          }
        }
        bool const goes_direct =
            with.options.host_order == HostOrder::eager &&
            (with.options.path == Path::direct || (with.options.path == Path::automatic && bytes >= 6000));
        direct += goes_direct ? 2 * static_cast<std::uint64_t>(bytes) : 0;
        ASSERT_EQ(comm.stats().bytes_direct, direct) << bytes << " bytes";
      }
    });
  }
}

TEST(SharedBuffers, DroppedOnesGoAndNewOnesTakeTheirPlace) {
  auto const rounds = [](int count) {
    run_ranks(2, with_path(Path::automatic), [&](int rank, Communicator& comm) {
      for (int round = 0; round < count; ++round) {
        auto buffer = comm.allocate(20000);
        std::int64_t const bytes = 8000;
        std::vector<std::int64_t> const counts(2, bytes);
        std::vector<std::int64_t> const displs{0, bytes};
        std::vector<std::byte> recv(2 * bytes);
        std::memset(buffer.data(), round * 2 + rank, 20000);
        comm.alltoallv(buffer.data(), counts, displs, u8, recv.data(), counts, displs, u8);
        ASSERT_EQ(recv[0], static_cast<std::byte>(round * 2));
        ASSERT_EQ(recv[static_cast<std::size_t>(2 * bytes - 1)], static_cast<std::byte>(round * 2 + 1));
        if (rank == round % 2) comm.barrier();  // one drops it before the other
        { auto const dropped = std::move(buffer); }
        if (rank != round % 2) comm.barrier();
      }
      // What was dropped is swept at the next allocate, but for that of the last rounds.
      EXPECT_LT(shared_mappings(), 20U);
    });
  };
  rounds(fewer(100));
}

TEST(SharedBuffers, OutliveTheirCommunicator) {
  run_ranks(2, [](int rank, Communicator& comm) {
    auto buffer = comm.allocate(100);
    comm = Communicator();
    std::memset(buffer.data(), rank, 100);
  });
}

TEST(SharedBuffers, TooManyBytesAreRefusedToAll) {
  run_ranks(3, [](int rank, Communicator& comm) {
    if (rank == 1) {
      expect_parts(raised<UsageError>([&] { static_cast<void>(comm.allocate(SIZE_MAX)); }),
                   {"allocate", "bytes is " + std::to_string(SIZE_MAX), "2^63"});
    } else {
      expect_parts(raised<PeerError>([&] { static_cast<void>(comm.allocate(100)); }),
                   {"allocate", "rank 1 refused", "2^63"});
    }
    if (rank == 2) {
      auto const bytes = more_than_free();
      expect_parts(raised<SystemError>([&] { static_cast<void>(comm.allocate(bytes)); }),
                   {"needed " + std::to_string(bytes + 4096) + " bytes", "free "});
    } else {
      expect_parts(raised<PeerError>([&] { static_cast<void>(comm.allocate(100)); }), {"rank 2 refused", "needed"});
    }
    auto const buffer = comm.allocate(100);
    EXPECT_EQ(buffer.bytes(), 100U);
    comm.barrier();
  });
}

}  // namespace
}  // namespace davit::test
