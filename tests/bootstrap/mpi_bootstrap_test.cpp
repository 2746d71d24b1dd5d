// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bootstrap over MPI, under mpirun: what is promised in davit/bootstrap.hpp and davit/mpi.hpp.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "davit/error.hpp"
#include "davit/mpi.hpp"
#include "davit/options.hpp"

// What the macros of mpi.h expand to, not what is written here.
#pragma GCC diagnostic ignored "-Wold-style-cast"

namespace {

using davit::Bootstrap;
using namespace std::chrono_literals;

davit::Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }
davit::Deadline soon() { return in(200ms); }
davit::Deadline late() { return in(60s); }

std::shared_ptr<Bootstrap> make() { return davit::mpi(MPI_COMM_WORLD); }

std::vector<int> gather(Bootstrap& boot, int mine) {
  std::vector<int> all(static_cast<std::size_t>(boot.size()), -1);
  boot.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), late());
  return all;
}

std::vector<int> ranks_of(Bootstrap const& boot) {
  std::vector<int> ranks;
  for (int r = 0; r < boot.size(); ++r) ranks.push_back(r);
  return ranks;
}

template <class Raised, class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (Raised const& error) {
    return error.what();
  } catch (std::exception const& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::byte pattern(int rank, std::size_t at) {
  return static_cast<std::byte>(31 * (rank + 1) + 7 * static_cast<int>(at));
}

TEST(MpiBootstrap, RankAndSizeAreThoseOfTheCommunicator) {
  auto const boot = make();
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(boot->rank(), rank);
  EXPECT_EQ(boot->size(), size);
}

TEST(MpiBootstrap, AllgatherGivesAllBlocksInOrder) {
  auto const boot = make();
  auto const n = static_cast<std::size_t>(boot->size());
  for (std::size_t bytes : {0UL, 1UL, 3UL, 8UL, 64UL, 1000UL, 4096UL, 0UL, 70000UL, 1000000UL}) {
    std::vector<std::byte> mine(bytes);
    std::vector<std::byte> all(bytes * n + 1, std::byte{0xAB});
    for (std::size_t i = 0; i < bytes; ++i) mine[i] = pattern(boot->rank(), i);
    boot->allgather(mine, std::span(all).first(bytes * n), late());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes * n; ++i) wrong += all[i] != pattern(static_cast<int>(i / bytes), i % bytes);
    EXPECT_EQ(wrong, 0U) << bytes << " bytes";
    EXPECT_EQ(all.back(), std::byte{0xAB});
  }
}

TEST(MpiBootstrap, ManyRoundsKeepApart) {
  auto const boot = make();
  for (int round = 0; round < 500; ++round) {
    auto const all = gather(*boot, 1000 * round + boot->rank());
    for (int r = 0; r < boot->size(); ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], 1000 * round + r);
  }
}

TEST(MpiBootstrap, BarrierWaitsForAll) {
  auto const boot = make();
  auto const start = std::chrono::steady_clock::now();
  if (boot->rank() == boot->size() - 1) std::this_thread::sleep_for(100ms);
  boot->barrier(late());
  EXPECT_GE(std::chrono::steady_clock::now() - start, boot->size() > 1 ? 50ms : 0ms);
}

TEST(MpiBootstrap, NodesAreNumberedByAppearanceAndInherited) {
  auto const boot = make();
  std::vector<int> const nodes(boot->nodes().begin(), boot->nodes().end());
  ASSERT_EQ(static_cast<int>(nodes.size()), boot->size());
  int next = 0;
  for (int node : nodes) {
    EXPECT_LE(node, next);
    next += node == next ? 1 : 0;
  }
  for (int r = 0; r < boot->size(); ++r) {  // all ranks hold the same
    EXPECT_EQ(gather(*boot, nodes[static_cast<std::size_t>(r)]),
              std::vector<int>(nodes.size(), nodes[static_cast<std::size_t>(r)]));
  }
  auto const& pretended = davit::environment().nodes;
  for (std::size_t a = 0; a < pretended.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_TRUE(pretended[a] == pretended[b] || nodes[a] != nodes[b]);
    }
  }
  auto const reversed = boot->split(0, -boot->rank(), late());
  auto const mirror = [&](int r) { return nodes[nodes.size() - 1 - static_cast<std::size_t>(r)]; };
  EXPECT_EQ(reversed->nodes()[0], 0);
  for (int r = 1; r < reversed->size(); ++r) {
    auto const at = static_cast<std::size_t>(r);
    EXPECT_EQ(reversed->nodes()[at] == reversed->nodes()[at - 1], mirror(r) == mirror(r - 1));
  }
}

TEST(MpiBootstrap, SplitOrdersByKeyAndSplitsAgain) {
  auto const boot = make();
  int const me = boot->rank();
  auto const half = boot->split(me % 2, -me, late());  // reversed
  ASSERT_NE(half, nullptr);
  int const of_my_kind = (boot->size() + 1 - me % 2) / 2;
  ASSERT_EQ(half->size(), of_my_kind);
  EXPECT_EQ(half->rank(), of_my_kind - 1 - me / 2);
  EXPECT_EQ(static_cast<int>(half->nodes().size()), of_my_kind);
  auto const all = gather(*half, me);
  for (int i = 0; i < of_my_kind; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)], 2 * (of_my_kind - 1 - i) + me % 2);
  }
  auto const alone = half->split(half->rank(), 0, late());
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(gather(*alone, me), std::vector{me});
  auto const same = half->split(7, 5, late());  // equal keys: the order stays
  EXPECT_EQ(same->rank(), half->rank());
  EXPECT_EQ(gather(*same, me), all);
}

TEST(MpiBootstrap, NegativeColorGivesNull) {
  auto const boot = make();
  auto const others = boot->split(boot->rank() == 0 ? -1 : 3, 0, late());
  EXPECT_EQ(others == nullptr, boot->rank() == 0);
  if (others) {
    EXPECT_EQ(others->size(), boot->size() - 1);
    EXPECT_EQ(gather(*others, 1), std::vector<int>(static_cast<std::size_t>(others->size()), 1));
  }
  EXPECT_EQ(boot->split(-5, 0, late()), nullptr);
  boot->barrier(late());
}

TEST(MpiBootstrap, TimeOutNamesTheMissingAndStays) {
  auto const boot = make();
  if (boot->size() < 2) GTEST_SKIP() << "needs two ranks";
  int const last = boot->size() - 1;
  if (boot->rank() == last) {
    // Comes late, and finds the messages of those that gave up. What needs an answer from them must end all the same.
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_THROW(static_cast<void>(boot->split(0, 0, soon())), davit::TimeoutError);
  } else {
    auto const text = text_of<davit::TimeoutError>([&] { static_cast<void>(boot->split(0, 0, soon())); });
    EXPECT_EQ(text, "davit: bootstrap allgather: time-out waiting for rank " + std::to_string(last) + " of " +
                        std::to_string(boot->size()));
    auto const start = std::chrono::steady_clock::now();
    try {
      boot->barrier(late());
      ADD_FAILURE() << "no time-out";
    } catch (davit::TimeoutError const& error) {
      EXPECT_EQ(error.rank(), last);
      EXPECT_EQ(error.what(), text);
    }
    EXPECT_EQ(text_of<davit::TimeoutError>([&] { static_cast<void>(boot->split(0, 0, late())); }), text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  auto const anew = make();  // a failed one is in nobody's way
  EXPECT_EQ(gather(*anew, anew->rank()), ranks_of(*anew));
}

TEST(MpiBootstrap, TimeOutWithLargeBlocksLeavesTheCallersMemoryAlone) {
  auto const boot = make();
  if (boot->size() < 2) GTEST_SKIP() << "needs two ranks";
  std::vector<std::byte> const mine(1000000, std::byte{7});
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(boot->size()), std::byte{1});
  if (boot->rank() == 0) MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_THROW(boot->allgather(mine, all, soon()), davit::TimeoutError);
  if (boot->rank() != 0) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(all, std::vector<std::byte>(all.size(), std::byte{1}));
}

TEST(MpiBootstrap, DifferentLengthsAreRefusedOnAllRanksAndForgotten) {
  auto const boot = make();
  if (boot->size() < 2) GTEST_SKIP() << "needs two ranks";
  for (std::size_t scale : {1UL, 50000UL}) {
    std::size_t const bytes = scale * (boot->rank() == 1 ? 5 : 4);
    std::vector<std::byte> mine(bytes);
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(boot->size()), std::byte{1});
    EXPECT_THROW(boot->allgather(mine, all, late()), davit::MismatchError);
    EXPECT_EQ(all, std::vector<std::byte>(all.size(), std::byte{1}));
    EXPECT_EQ(gather(*boot, boot->rank()), ranks_of(*boot));
    EXPECT_THROW(boot->allgather(mine, std::span(all).first(1), late()), davit::UsageError);
    boot->barrier(late());
  }
}

TEST(MpiBootstrap, ThousandLives) {
  for (int i = 0; i < 1000; ++i) {
    auto const boot = make();
    auto const child = boot->split((boot->rank() + i) % 3 - 1, 0, late());
    if (child && i % 10 == 0) child->barrier(late());
  }
}

TEST(MpiBootstrap, TwoOnOneCommunicatorKeepApart) {
  auto first = make();
  auto const second = make();
  for (int round = 0; round < 20; ++round) {
    auto& sooner = round % 2 == 0 ? *first : *second;
    auto& later = round % 2 == 0 ? *second : *first;
    EXPECT_EQ(gather(sooner, sooner.rank()), ranks_of(sooner));
    EXPECT_EQ(gather(later, later.rank()), ranks_of(later));
  }
  auto const child = second->split(0, 0, late());
  first.reset();
  auto const third = child->split(0, -child->rank(), late());
  EXPECT_EQ(gather(*third, third->rank()), ranks_of(*third));
  EXPECT_EQ(gather(*second, second->rank()), ranks_of(*second));
}

TEST(MpiBootstrap, TheProgramsMessagesAreLeftAlone) {
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &parent);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(parent, &rank);
  MPI_Comm_size(parent, &size);
  constexpr int tags = 40;  // those that a bootstrap uses first
  std::array<int, tags + 1> out{};
  std::array<MPI_Request, tags + 1> sends{};
  for (int tag = 0; tag < tags; ++tag) {
    out[static_cast<std::size_t>(tag)] = 1000 * rank + tag;
    MPI_Isend(&out[static_cast<std::size_t>(tag)], 1, MPI_INT, (rank + 1) % size, tag, parent,
              &sends[static_cast<std::size_t>(tag)]);
  }
  MPI_Comm quiet = MPI_COMM_NULL;  // here the program waits for anything, and nothing of davit may come
  MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
  int in_quiet = -1;
  MPI_Request any = MPI_REQUEST_NULL;
  MPI_Irecv(&in_quiet, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, quiet, &any);
  {
    auto const boot = davit::mpi(parent);
    auto const other = davit::mpi(quiet);
    for (int round = 0; round < tags; ++round) {
      EXPECT_EQ(gather(*boot, boot->rank()), ranks_of(*boot));
      EXPECT_EQ(gather(*other, other->rank()), ranks_of(*other));
      boot->progress();
    }
    EXPECT_NE(boot->split(0, 0, late()), nullptr);
  }
  int flag = -1;
  MPI_Test(&any, &flag, MPI_STATUS_IGNORE);
  EXPECT_EQ(flag, 0);
  MPI_Barrier(MPI_COMM_WORLD);  // nobody sends there before all have looked
  for (int tag = 0; tag < tags; ++tag) {
    int value = -1;
    MPI_Recv(&value, 1, MPI_INT, (rank + size - 1) % size, tag, parent, MPI_STATUS_IGNORE);
    EXPECT_EQ(value, 1000 * ((rank + size - 1) % size) + tag);
  }
  MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % size, 0, quiet, &sends.back());
  MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE);
  MPI_Wait(&any, MPI_STATUS_IGNORE);
  EXPECT_EQ(in_quiet, (rank + size - 1) % size);
  MPI_Comm_free(&quiet);
  MPI_Comm_free(&parent);
}

TEST(MpiBootstrap, ProgressGetsAPeersSendOn) {
  auto const boot = make();
  if (boot->size() < 2) GTEST_SKIP() << "needs two ranks";
  std::vector<char> bytes(1 << 20, boot->rank() == 1 ? char{1} : char{0});  // too large to leave without the receiver
  if (boot->rank() == 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
    std::this_thread::sleep_for(50ms);  // by now ranks above 1 are in the barrier, and their messages lie here
    auto const deadline = in(20s);
    char const volatile& last_byte = bytes.back();
    while (last_byte == 0 && std::chrono::steady_clock::now() < deadline) boot->progress();
    EXPECT_EQ(last_byte, 1);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (boot->rank() == 1) MPI_Send(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
  boot->barrier(late());
}

TEST(MpiBootstrap, NullIsRefused) { EXPECT_THROW(static_cast<void>(davit::mpi(MPI_COMM_NULL)), davit::UsageError); }

TEST(MpiBootstrap, AnInterCommunicatorIsRefused) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &inter);
  EXPECT_THROW(static_cast<void>(davit::mpi(inter)), davit::UsageError);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

TEST(MpiBootstrap, ThreadsCallAsMpisThreadLevelAllows) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  auto const boot = make();
  std::shared_ptr<Bootstrap> elsewhere;
  std::thread([&] {
    boot->progress();
    if (level >= MPI_THREAD_SERIALIZED) {
      EXPECT_EQ(gather(*boot, boot->rank()), ranks_of(*boot));
      elsewhere = make();
      return;
    }
    std::string const name = level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
    auto const refusals = {text_of<davit::UsageError>([&] { boot->barrier(late()); }),
                           text_of<davit::UsageError>([&] { static_cast<void>(boot->split(0, 0, late())); }),
                           text_of<davit::UsageError>([&] { static_cast<void>(make()); })};
    for (auto const& text : refusals) EXPECT_NE(text.find(name), std::string::npos) << text;
  }).join();
  EXPECT_EQ(gather(*boot, boot->rank()), ranks_of(*boot));
  EXPECT_EQ(elsewhere != nullptr, level >= MPI_THREAD_SERIALIZED);
}

TEST(MpiBootstrap, ThreadsMakeAndUseTheirOwnAtOnce) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) GTEST_SKIP() << "needs MPI_THREAD_MULTIPLE";
  std::array<MPI_Comm, 2> comms{};
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  auto const play = [](MPI_Comm comm) {
    for (int i = 0; i < 20; ++i) {
      auto const boot = davit::mpi(comm);
      auto const child = boot->split(boot->rank() % 2, 0, late());
      EXPECT_EQ(gather(*boot, boot->rank()), ranks_of(*boot));
      EXPECT_EQ(gather(*child, child->rank()), ranks_of(*child));
    }
  };
  std::thread other(play, comms[0]);
  play(comms[1]);
  other.join();
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

/// Last, since the collective that a time-out leaves behind on `parent` is never finished. Needs DAVIT_TIMEOUT=1 or so.
TEST(MpiBootstrapLast, MakingOneTimesOutWhereNotAllRanksCome) {
  if (davit::environment().timeout > 5s) GTEST_SKIP() << "needs DAVIT_TIMEOUT of 5 seconds at most";
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &parent);
  if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);  // comes when the others have gone
  auto const text = text_of<davit::TimeoutError>([&] { static_cast<void>(davit::mpi(parent)); });
  EXPECT_NE(text.find("not all ranks of the communicator called davit::mpi"), std::string::npos) << text;
  if (rank != 0) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  auto const anew = make();  // other communicators are not concerned
  EXPECT_EQ(gather(*anew, anew->rank()), ranks_of(*anew));
}

}  // namespace
