// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators made of others, several at once, made and destroyed many times.
#include <gtest/gtest.h>

#include <thread>

#include "davit/error.hpp"
#include "tests/runtime/circumstances.hpp"
#include "tests/support/access.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/files.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/nodes.hpp"

namespace davit::test {
namespace {

void exchange_on(Communicator& comm, std::uint64_t stream) {
  Random same(stream);
  Exchange const exchange(same, comm.size(), random_matrix(same, comm.size(), {}));
  Buffers buffers(exchange, comm.rank());
  buffers.run(comm);
  buffers.check("communicator " + comm.name());
}

TEST(Split, GroupsByColorOrdersByKey) {
  Making with;
  with.options.slots = 2;
  with.options.slot_bytes = 4096;
  run_ranks(5, with, [](int rank, Communicator& comm) {
    // Ranks 0, 2, 4 in falling order; 1 and 3 in their own.
    auto part = comm.split(rank % 2, rank % 2 == 0 ? -rank : 0);
    ASSERT_TRUE(part);
    EXPECT_EQ(part.size(), rank % 2 == 0 ? 3 : 2);
    EXPECT_EQ(part.rank(), rank % 2 == 0 ? (4 - rank) / 2 : rank / 2);
    EXPECT_EQ(part.name(), "test/" + std::to_string(rank % 2));
    EXPECT_EQ(part.options().slots, 2);
    EXPECT_EQ(part.options().slot_bytes, 4096U);
    exchange_on(part, static_cast<std::uint64_t>(rank % 2));
    exchange_on(comm, 10);
    exchange_on(part, static_cast<std::uint64_t>(20 + rank % 2));
  });
}

TEST(Split, NegativeColorGivesANullOne) {
  run_ranks(4, [](int rank, Communicator& comm) {
    auto part = comm.split(rank == 2 ? -1 : 7);
    EXPECT_EQ(static_cast<bool>(part), rank != 2);
    if (part) {
      EXPECT_EQ(part.size(), 3);
      exchange_on(part, 1);
    }
    comm.barrier();
    auto const none = comm.split(-1);
    EXPECT_FALSE(none);
  });
}

TEST(Split, PartOutlivesTheWhole) {
  run_ranks(4, [](int rank, Communicator& comm) {
    auto part = comm.split(rank / 2);
    auto again = part.split(0);
    comm = Communicator();
    part = Communicator();
    exchange_on(again, static_cast<std::uint64_t>(rank / 2));
  });
}

TEST(Dup, IsAnotherCommunicator) {
  run_ranks(3, [](int rank, Communicator& comm) {
    comm.prepare();
    auto twin = comm.dup();
    EXPECT_EQ(twin.rank(), rank);
    EXPECT_EQ(twin.size(), 3);
    EXPECT_EQ(twin.calls(), 0U);
    // It is not prepared: slots are its own.
    EXPECT_FALSE(davit::detail::Access::state(twin).mesh->prepared());
    exchange_on(twin, 1);
    exchange_on(comm, 2);
  });
}

TEST(Dup, OpenRequestsOnTwoInOppositeOrder) {
  run_ranks(4, [](int rank, Communicator& comm) {
    auto twin = comm.dup();
    comm.prepare();
    twin.prepare();
    for (std::uint64_t round = 0; round < 10; ++round) {
      Random same(round);
      Exchange const one(same, 4, random_matrix(same, 4, {}));
      Exchange const two(same, 4, random_matrix(same, 4, {}));
      Buffers first(one, rank);
      Buffers second(two, rank);
      std::vector<Request> requests;
      if (rank % 2 == 0) {
        requests.push_back(first.post(comm));
        requests.push_back(second.post(twin));
      } else {
        requests.push_back(second.post(twin));
        requests.push_back(first.post(comm));
      }
      for (auto& request : requests) request.wait();
      first.check();
      second.check();
    }
  });
}

TEST(Dup, DifferentThreadsUseDifferentOnesAtOnce) {
  if (wire_is_for_one_thread()) GTEST_SKIP() << "refused";
  auto const rounds = static_cast<std::uint64_t>(fewer(30));
  run_ranks(2, [rounds](int, Communicator& comm) {
    std::vector<Communicator> twins;
    for (int i = 0; i < 3; ++i) twins.push_back(comm.dup());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < twins.size(); ++i) {
      threads.emplace_back([&twins, i, rounds] {
        for (std::uint64_t round = 0; round < rounds; ++round) exchange_on(twins[i], 100 * i + round);
      });
    }
    for (std::uint64_t round = 0; round < rounds; ++round) exchange_on(comm, 1000 + round);
    for (auto& thread : threads) thread.join();
  });
}

/// A rank may destroy its communicator as soon as its own calls have returned, whatever the others still do.
TEST(Lifecycle, LeavingAtOnceHarmsNobody) {
  for (int turn = 0; turn < fewer(30); ++turn) {
    Making with;
    with.options.slot_bytes = 4096;
    with.options.slots = 1;
    with.options.path = turn % 2 == 0 ? Path::slots : Path::automatic;
    run_ranks(4, with, [&](int, Communicator& comm) {
      exchange_on(comm, static_cast<std::uint64_t>(turn));
      if (turn % 3 == 0) comm.barrier();
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Lifecycle, NothingIsLeftAfterManyCommunicators) {
  auto const cycles = [](int count) {
    auto const thrown = play_ranks(
        2,
        [count](int, std::shared_ptr<Bootstrap> const& bootstrap) {
          for (int i = 0; i < count; ++i) {
            Options options = Making::patient();
            options.slot_bytes = 4096;
            auto comm = made(bootstrap, options);
            exchange_on(comm, static_cast<std::uint64_t>(i));
            auto buffer = comm.allocate(10000);
            auto part = comm.split(0);
            part.barrier();
          }
        },
        std::chrono::seconds(60));
    for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
  };
  cycles(20);
  auto const descriptors = open_descriptors();
  auto const mappings = shared_mappings();
  auto const resident = resident_bytes();
  cycles(fewer(500));
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(shared_mappings(), mappings);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes(), resident + (std::size_t{8} << 20));
#endif
  static_cast<void>(resident);
}

TEST(Lifecycle, MemoryIsWhatTheFormulaSays) {
  for (int const ranks : {1, 2, 9, 64}) {
    for (std::size_t const slot : {std::size_t{4096}, std::size_t{1} << 20}) {
      Options options;
      options.slot_bytes = slot;
      options.slots = 3;
      auto const use = memory_use(ranks, options);
      auto const n = static_cast<std::size_t>(ranks);
      EXPECT_EQ(use.control_bytes, (4096 + n * (128 + 64 * 64) + 64 * 256 + 4095) / 4096 * 4096);
      EXPECT_EQ(use.slots_bytes, 2 * 3 * (slot + 4096));
      EXPECT_EQ(use.slot_bytes, slot);
      EXPECT_EQ(use.slots, 3);
    }
  }
  auto const automatic = memory_use(4);
  EXPECT_GE(automatic.slot_bytes, std::size_t{128} << 10);
  EXPECT_LE(automatic.slot_bytes, std::size_t{1} << 20);
  EXPECT_EQ(automatic.slot_bytes & (automatic.slot_bytes - 1), 0U);
  EXPECT_GE(automatic.slots, 4);
  expect_parts(raised<UsageError>([] { static_cast<void>(memory_use(0)); }), {"ranks is 0", "1 or more"});
}

}  // namespace
}  // namespace davit::test
