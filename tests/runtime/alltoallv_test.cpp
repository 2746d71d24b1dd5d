// SPDX-License-Identifier: Apache-2.0
/// @file
/// alltoallv against a naive copy: random counts, layouts, dtypes and ways.
#include <gtest/gtest.h>

#include "davit/error.hpp"
#include "tests/runtime/circumstances.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/limits.hpp"

namespace davit::test {
namespace {

class Alltoallv : public UnderCircumstances {};
INSTANTIATE_TEST_SUITE_P(All, Alltoallv, testing::ValuesIn(circumstances({1, 2, 3, 4, 8})), circumstances_name);

/// Options drawn at random, and sizes around what they make special.
std::pair<Options, Sizes> random_options(Random& random, Options options) {
  options.slot_bytes = random.one_of<std::size_t>({4096, 4096, 8192});
  options.slots = random.one_of({1, 1, 2, 4});
  options.direct_bytes = random.one_of<std::size_t>({1, 4096, 10000, 32768});
  if (options.host_order == HostOrder::eager) {
    options.path = random.one_of({Path::automatic, Path::slots, Path::direct});
  }
  return {options, Sizes{options.slot_bytes, options.direct_bytes, 20000}};
}

enum class Form { blocking, in_place, nonblocking, plan, barrier };

TEST_P(Alltoallv, EqualsANaiveCopy) {
  for (int turn = 0; turn < fewer(5); ++turn) {
    Random random(static_cast<std::uint64_t>(turn));
    auto with = setup();
    Sizes sizes;
    std::tie(with.options, sizes) = random_options(random, with.options);
    run_ranks(ranks(), with, [&](int rank, Communicator& comm) {
      Random same(static_cast<std::uint64_t>(100 + turn));  // alike on all ranks
      comm.prepare();
      for (int round = 0; round < 10; ++round) {
        auto const form =
            same.one_of({Form::blocking, Form::blocking, Form::in_place, Form::nonblocking, Form::plan, Form::barrier});
        auto matrix = random_matrix(same, ranks(), sizes);
        if (form == Form::in_place) matrix = made_symmetric(std::move(matrix), ranks());
        Exchange const exchange(same, ranks(), std::move(matrix));
        Buffers buffers(exchange, rank, form == Form::in_place);
        switch (form) {
          case Form::barrier:
            comm.barrier();
            continue;
          case Form::nonblocking:
            buffers.post(comm).wait();
            break;
          case Form::plan: {
            auto plan = buffers.plan(comm);
            plan.start();
            plan.wait();
            break;
          }
          default:
            buffers.run(comm);
        }
        buffers.check("turn " + std::to_string(turn) + ", round " + std::to_string(round) + ", form " +
                      std::to_string(static_cast<int>(form)));
        if (testing::Test::HasFailure()) return;
      }
    });
  }
}

/// The same bytes from each rank to each, around all the edges.
TEST_P(Alltoallv, AllSizesAroundTheEdges) {
  auto with = setup();
  with.options.slot_bytes = 4096;
  with.options.slots = 1;
  with.options.direct_bytes = 12288;
  std::vector<std::uint64_t> sizes{0, 1, 63, 64, 65};
  for (std::uint64_t const edge : {4096U, 8192U, 12288U, 16384U}) {
    for (std::uint64_t const size : {edge - 1, edge, edge + 1}) sizes.push_back(size);
  }
  run_ranks(ranks(), with, [&](int rank, Communicator& comm) {
    for (auto const bytes : sizes) {
      Random same(bytes);
      Exchange const exchange(same, ranks(), Matrix(static_cast<std::size_t>(ranks() * ranks()), bytes));
      for (bool const in_place : {false, true}) {
        Buffers buffers(exchange, rank, in_place);
        buffers.run(comm);
        buffers.check(std::to_string(bytes) + " bytes" + (in_place ? " in place" : ""));
      }
    }
  });
}

/// One rank gives, or gets, nearly everything: many times what the slots hold.
TEST_P(Alltoallv, HugeSkew) {
  auto with = setup();
  with.options.slot_bytes = 4096;
  with.options.slots = 2;
  if (is_eager()) with.options.path = Path::slots;
  auto const n = ranks();
  run_ranks(n, with, [&](int rank, Communicator& comm) {
    Random same(7);
    for (int busy = 0; busy < n; busy += 3) {
      Matrix gives(static_cast<std::size_t>(n * n), 8);
      Matrix gets(gives);
      for (int peer = 0; peer < n; ++peer) {
        gives[static_cast<std::size_t>(busy * n + peer)] = 40 * 4096 + 8;
        gets[static_cast<std::size_t>(peer * n + busy)] = 40 * 4096 + 8;
      }
      for (auto const& matrix : {gives, gets}) {
        Exchange const exchange(same, n, matrix);
        Buffers buffers(exchange, rank);
        buffers.run(comm);
        buffers.check("busy rank " + std::to_string(busy));
      }
    }
  });
}

TEST_P(Alltoallv, NothingAtAllWithNullPointers) {
  run_ranks(ranks(), setup(), [&](int, Communicator& comm) {
    std::vector<std::int64_t> const zeros(static_cast<std::size_t>(comm.size()));
    std::vector<std::int64_t> const garbage(zeros.size(), -5);
    for (int round = 0; round < fewer(100); ++round) {
      comm.alltoallv(nullptr, zeros, garbage, f32, nullptr, zeros, garbage, u8);
      comm.alltoallv(davit::in_place, {}, {}, f32, nullptr, zeros, garbage, u8);
    }
  });
}

TEST_P(Alltoallv, ManyShortCallsInARow) {
  auto with = setup();
  with.options.slot_bytes = 4096;
  with.options.slots = 1;
  run_ranks(ranks(), with, [&](int rank, Communicator& comm) {
    auto const n = static_cast<std::size_t>(comm.size());
    std::vector<std::int64_t> const ones(n, 1);
    std::vector<std::int64_t> displs(n);
    for (std::size_t i = 0; i < n; ++i) displs[i] = static_cast<std::int64_t>(i);
    std::vector<std::int32_t> send(n);
    std::vector<std::int32_t> recv(n);
    for (int round = 0; round < fewer(300); ++round) {
      for (std::size_t to = 0; to < n; ++to) send[to] = 10000 * round + 100 * rank + static_cast<int>(to);
      comm.alltoallv(send.data(), ones, displs, recv.data(), ones, displs);  // the typed form
      for (std::size_t from = 0; from < n; ++from) {
        ASSERT_EQ(recv[from], 10000 * round + 100 * static_cast<int>(from) + rank);
      }
    }
  });
}

TEST_P(Alltoallv, CallsAreNumberedAlikeFromTheStart) {
  auto const first = GetParam().start.number;
  run_ranks(ranks(), setup(), [&](int, Communicator& comm) {
    EXPECT_EQ(comm.calls(), first - 1);
    for (std::uint32_t i = 0; i < 100; ++i) {
      comm.barrier();
      ASSERT_EQ(comm.calls(), first + i);
    }
    EXPECT_EQ(comm.stats().calls, 100U);
  });
}

TEST(AlltoallvLarge, SeveralMegabytesEachWay) {
  for (auto const path : {Path::slots, Path::automatic}) {
    Making with;
    with.options.path = path;
    run_ranks(2, with, [&](int rank, Communicator& comm) {
      Random same(1);
      // Above the piece that a direct copy is cut into.
      Exchange const exchange(same, 2, {8, (std::uint64_t{9} << 20) + 8, (std::uint64_t{5} << 20) + 16, 0});
      Buffers buffers(exchange, rank);
      for (int round = 0; round < 2; ++round) {
        buffers.reset();
        buffers.run(comm);
        buffers.check();
      }
    });
  }
}

TEST(CommunicatorBasics, TellsWhatItIs) {
  Making with;
  with.options.name = "mine";
  with.options.slots = 3;
  run_ranks(3, with, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.rank(), rank);
    EXPECT_EQ(comm.size(), 3);
    EXPECT_EQ(comm.name(), "mine");
    EXPECT_EQ(comm.options().slots, 3);
    EXPECT_TRUE(comm);
    EXPECT_TRUE(comm.usable());
    auto moved = std::move(comm);
    EXPECT_FALSE(comm);  // NOLINT(bugprone-use-after-move): what is promised of it
    moved.barrier();
    comm = std::move(moved);
    comm.barrier();
  });
}

TEST(CommunicatorBasics, NullOneRefusesEverything) {
  Communicator comm;
  EXPECT_FALSE(comm);
  std::vector<std::function<void()>> const calls{
      [&] { static_cast<void>(comm.rank()); },
      [&] { static_cast<void>(comm.size()); },
      [&] { static_cast<void>(comm.name()); },
      [&] { static_cast<void>(comm.options()); },
      [&] { static_cast<void>(comm.usable()); },
      [&] { static_cast<void>(comm.stats()); },
      [&] { static_cast<void>(comm.calls()); },
      [&] { comm.prepare(); },
      [&] { comm.barrier(); },
      [&] { static_cast<void>(comm.split(0)); },
      [&] { static_cast<void>(comm.dup()); },
      [&] { static_cast<void>(comm.allocate(1)); },
      [&] { comm.alltoallv(nullptr, {}, {}, u8, nullptr, {}, {}, u8); },
      [&] { static_cast<void>(comm.ialltoallv(nullptr, {}, {}, u8, nullptr, {}, {}, u8)); },
      [&] { static_cast<void>(comm.alltoallv_init(nullptr, {}, {}, u8, nullptr, {}, {}, u8)); },
      [&] { comm.allgatherv(nullptr, 0, u8, nullptr, {}, {}, u8); },
      [&] { comm.reduce_scatterv(nullptr, nullptr, {}, f32); }};
  for (auto const& call : calls) expect_parts(raised<UsageError>(call), {"null"});
  expect_parts(raised<UsageError>([] { Communicator const none{std::shared_ptr<Bootstrap>()}; }),
               {"bootstrap", "null"});
}

}  // namespace
}  // namespace davit::test
