// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bootstrap over threads: what is promised in davit/bootstrap.hpp, with ranks as threads, for sanitizers to see.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "davit/bootstrap.hpp"
#include "davit/error.hpp"

namespace {

using davit::Bootstrap;
using namespace std::chrono_literals;

davit::Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }
davit::Deadline soon() { return in(100ms); }
davit::Deadline late() { return in(60s); }

/// Plays `n` ranks; `body` must not throw.
void spawn(int n, std::function<void(Bootstrap&)> const& body) {
  auto const ranks = davit::threads(n);
  std::vector<std::thread> threads;
  for (auto const& rank : ranks) threads.emplace_back([&body, &rank] { body(*rank); });
  for (auto& thread : threads) thread.join();
}

std::vector<int> gather(Bootstrap& boot, int mine, davit::Deadline deadline) {
  std::vector<int> all(static_cast<std::size_t>(boot.size()), -1);
  boot.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), deadline);
  return all;
}

/// Text of the time-out that an allgather on `boot` raises, and checks whom it names.
std::string time_out(Bootstrap& boot, davit::Deadline deadline, int culprit) {
  try {
    boot.barrier(deadline);
  } catch (davit::TimeoutError const& error) {
    EXPECT_EQ(error.rank(), culprit);
    return error.what();
  }
  ADD_FAILURE() << "rank " << boot.rank() << ": no time-out";
  return {};
}

std::byte pattern(int rank, std::size_t at) {
  return static_cast<std::byte>(31 * (rank + 1) + 7 * static_cast<int>(at));
}

class ThreadsBootstrap : public testing::TestWithParam<int> {};

TEST_P(ThreadsBootstrap, AllgatherGivesAllBlocksInOrder) {
  spawn(GetParam(), [](Bootstrap& boot) {
    auto const n = static_cast<std::size_t>(boot.size());
    for (std::size_t bytes : {0UL, 1UL, 3UL, 8UL, 64UL, 1000UL, 4096UL, 0UL, 70000UL}) {
      std::vector<std::byte> mine(bytes);
      std::vector<std::byte> all(bytes * n + 1, std::byte{0xAB});
      for (std::size_t i = 0; i < bytes; ++i) mine[i] = pattern(boot.rank(), i);
      boot.allgather(mine, std::span(all).first(bytes * n), late());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes * n; ++i) wrong += all[i] != pattern(static_cast<int>(i / bytes), i % bytes);
      EXPECT_EQ(wrong, 0U) << bytes << " bytes, rank " << boot.rank();
      EXPECT_EQ(all.back(), std::byte{0xAB});
    }
  });
}

TEST_P(ThreadsBootstrap, ManyRoundsKeepApart) {
  spawn(GetParam(), [](Bootstrap& boot) {
    for (int round = 0; round < 500; ++round) {
      auto const all = gather(boot, 1000 * round + boot.rank(), late());
      for (int r = 0; r < boot.size(); ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], 1000 * round + r);
    }
  });
}

TEST_P(ThreadsBootstrap, AllRanksAreOnOneNode) {
  auto const ranks = davit::threads(GetParam());
  ASSERT_EQ(static_cast<int>(ranks.size()), GetParam());
  for (int r = 0; r < GetParam(); ++r) {
    auto const& rank = *ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(rank.rank(), r);
    EXPECT_EQ(rank.size(), GetParam());
    EXPECT_EQ(std::vector<int>(rank.nodes().begin(), rank.nodes().end()), std::vector<int>(ranks.size(), 0));
  }
}

TEST_P(ThreadsBootstrap, BarrierWaitsForAll) {
  std::atomic<int> came = 0;
  spawn(GetParam(), [&](Bootstrap& boot) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      boot.barrier(late());
      EXPECT_GE(came.load(), round * boot.size());
      boot.barrier(late());
    }
  });
}

TEST_P(ThreadsBootstrap, SplitOrdersByKeyAndSplitsAgain) {
  spawn(GetParam(), [](Bootstrap& boot) {
    int const me = boot.rank();
    auto const half = boot.split(me % 2, -me, late());  // reversed
    ASSERT_NE(half, nullptr);
    int const of_my_kind = (boot.size() + 1 - me % 2) / 2;
    EXPECT_EQ(half->size(), of_my_kind);
    EXPECT_EQ(half->rank(), of_my_kind - 1 - me / 2);
    EXPECT_EQ(static_cast<int>(half->nodes().size()), of_my_kind);
    auto const all = gather(*half, me, late());
    for (int i = 0; i < of_my_kind; ++i) {
      EXPECT_EQ(all[static_cast<std::size_t>(i)], 2 * (of_my_kind - 1 - i) + me % 2);
    }
    auto const alone = half->split(half->rank(), 0, late());
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(gather(*alone, me, late()), std::vector{me});
    auto const same = half->split(7, 5, late());  // equal keys: the order stays
    EXPECT_EQ(same->rank(), half->rank());
    EXPECT_EQ(gather(*same, me, late()), all);
    boot.barrier(late());
  });
}

TEST_P(ThreadsBootstrap, NegativeColorGivesNull) {
  spawn(GetParam(), [](Bootstrap& boot) {
    auto const others = boot.split(boot.rank() == 0 ? -1 : 3, 0, late());
    EXPECT_EQ(others == nullptr, boot.rank() == 0);
    if (others) {
      EXPECT_EQ(others->size(), boot.size() - 1);
      EXPECT_EQ(gather(*others, 1, late()), std::vector<int>(static_cast<std::size_t>(others->size()), 1));
    }
    EXPECT_EQ(boot.split(-5, 0, late()), nullptr);
    boot.barrier(late());
  });
}

TEST_P(ThreadsBootstrap, DifferentLengthsAreRefusedOnAllRanksAndForgotten) {
  if (GetParam() < 2) GTEST_SKIP() << "needs two ranks";
  spawn(GetParam(), [](Bootstrap& boot) {
    std::size_t const bytes = boot.rank() == 1 ? 5 : 4;
    std::vector<std::byte> mine(bytes);
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(boot.size()), std::byte{1});
    EXPECT_THROW(boot.allgather(mine, all, late()), davit::MismatchError);
    EXPECT_EQ(all, std::vector<std::byte>(all.size(), std::byte{1}));
    EXPECT_EQ(gather(boot, 4, late()), std::vector<int>(static_cast<std::size_t>(boot.size()), 4));
    EXPECT_THROW(boot.allgather(mine, std::span(all).first(1), late()), davit::UsageError);
    boot.barrier(late());
  });
}

TEST_P(ThreadsBootstrap, ThousandSplits) {
  spawn(GetParam(), [](Bootstrap& boot) {
    for (int i = 0; i < 1000; ++i) {
      auto const child = boot.split((boot.rank() + i) % 3 - 1, i % 2 == 0 ? boot.rank() : -boot.rank(), late());
      if (child && i % 10 == 0) child->barrier(late());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsBootstrap, testing::Range(1, 9));

TEST(ThreadsBootstrapFailure, TimeOutNamesTheMissingAndStays) {
  spawn(4, [](Bootstrap& boot) {
    bool const is_missing = boot.rank() == 1 || boot.rank() == 3;
    if (is_missing) std::this_thread::sleep_for(300ms);
    auto const text = time_out(boot, soon(), 1);
    EXPECT_EQ(text, "davit: bootstrap allgather: time-out waiting for ranks 1, 3 of 4");
    auto const start = std::chrono::steady_clock::now();
    EXPECT_EQ(time_out(boot, late(), 1), text);
    EXPECT_THROW(static_cast<void>(boot.split(0, 0, late())), davit::TimeoutError);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  });
}

TEST(ThreadsBootstrapFailure, OneTimeOutEndsThePatienceOfAll) {
  spawn(3, [](Bootstrap& boot) {
    if (boot.rank() == 2) return;
    EXPECT_EQ(time_out(boot, boot.rank() == 0 ? late() : soon(), 2),
              "davit: bootstrap allgather: time-out waiting for rank 2 of 3");
  });
}

TEST(ThreadsBootstrapFailure, ThePastIsADeadlineToo) {
  auto const ranks = davit::threads(2);
  EXPECT_EQ(time_out(*ranks[0], davit::Deadline{}, 1), "davit: bootstrap allgather: time-out waiting for rank 1 of 2");
  EXPECT_NO_THROW(davit::threads(1)[0]->barrier(davit::Deadline{}));
}

TEST(ThreadsBootstrapFailure, AChildFailsAlone) {
  spawn(4, [](Bootstrap& boot) {
    auto const pair = boot.split(boot.rank() / 2, boot.rank(), late());
    if (boot.rank() == 0) time_out(*pair, soon(), 1);
    if (boot.rank() >= 2) pair->barrier(late());
    boot.barrier(late());
    if (boot.rank() == 1) time_out(*pair, late(), 1);
  });
}

TEST(ThreadsBootstrapFailure, LongListsOfRanksAreDrawnTogether) {
  auto const ranks = davit::threads(9);
  std::thread other([&] { time_out(*ranks[5], late(), 1); });
  EXPECT_EQ(time_out(*ranks[0], in(500ms), 1), "davit: bootstrap allgather: time-out waiting for ranks 1-4, 6-8 of 9");
  other.join();
}

TEST(ThreadsBootstrapFailure, NoRanksAreRefused) {
  EXPECT_THROW(static_cast<void>(davit::threads(0)), davit::UsageError);
  EXPECT_THROW(static_cast<void>(davit::threads(-2)), davit::UsageError);
}

TEST(ThreadsBootstrapFailure, ARankMayLeaveBeforeTheOthers) {
  auto ranks = davit::threads(2);
  std::thread other([mine = std::move(ranks[1])]() mutable {
    mine->barrier(late());
    mine.reset();
  });
  ranks[0]->barrier(late());
  other.join();
  EXPECT_THROW(ranks[0]->barrier(soon()), davit::TimeoutError);
}

}  // namespace
