// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls that some ranks refuse: many in a row, several ranks at once, between open requests, before prepare().
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "tests/runtime/arguments.hpp"
#include "tests/runtime/circumstances.hpp"

namespace davit::test {
namespace {

/// Runs a call that this rank refuses if `refuses`, and checks what comes of it. @returns the text.
std::string refused_call(Communicator& comm, bool refuses, int culprit, std::int64_t count = 4) {
  Arguments a(comm, count);
  if (refuses) a.send_counts[0] = -1;
  auto const call = [&] { a.run(comm); };
  return refuses ? raised<UsageError>(call) : peer_error(call, culprit);
}

class Refusals : public UnderCircumstances {
 protected:
  [[nodiscard]] static Making small_slots() {
    auto with = setup();
    with.options.slot_bytes = 4096;
    with.options.slots = 1;
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Refusals, testing::ValuesIn(circumstances({2, 4})), circumstances_name);

TEST_P(Refusals, OfChunkedCallsLeaveNothingBehind) {
  // Sizes of many chunks: what was pushed to the refuser before its card came must be forgiven.
  run_ranks(ranks(), small_slots(), [](int rank, Communicator& comm) {
    for (int round = 0; round < 12; ++round) {
      auto const culprit = round % comm.size();
      refused_call(comm, rank == culprit, culprit, 5000);
      EXPECT_TRUE(comm.usable());
      if (round % 3 == 2) exchange_is_right(comm, "round " + std::to_string(round), 3000);
    }
    exchange_is_right(comm, "at the end", 3000);
  });
}

TEST_P(Refusals, OneHundredInARow) {
  run_ranks(ranks(), small_slots(), [](int rank, Communicator& comm) {
    for (int round = 0; round < 100; ++round) {
      expect_parts(refused_call(comm, rank == 0, 0), {"send_counts[0] is -1"});
      if (testing::Test::HasFailure()) return;
    }
    exchange_is_right(comm, "after all", 2000);
  });
}

TEST_P(Refusals, OneHundredInARowBeforeThePeersCome) {
  // The first 64 are told without anybody listening; then the refuser waits for room.
  std::atomic<int> made{0};
  run_ranks(ranks(), small_slots(), [&](int rank, Communicator& comm) {
    comm.barrier();
    if (rank != 0) {
      while (made < 64) std::this_thread::yield();
    }
    for (int round = 0; round < 100; ++round) {
      refused_call(comm, rank == 0, 0);
      if (rank == 0) ++made;
    }
    exchange_is_right(comm, "after all", 2000);
  });
}

TEST_P(Refusals, ByAllOrSeveralAtOnce) {
  run_ranks(ranks(), small_slots(), [](int rank, Communicator& comm) {
    for (int round = 0; round < 100; ++round) {
      // All of them, then all but the last, then every other one.
      bool const refuses = round % 3 == 0 || (round % 3 == 1 ? rank + 1 < comm.size() : rank % 2 == 0);
      Arguments a(comm);
      if (refuses) a.recv_counts[0] = -1 - rank;
      auto const call = [&] { a.run(comm); };
      if (refuses) {
        expect_parts(raised<UsageError>(call), {"recv_counts[0] is " + std::to_string(-1 - rank)});
      } else {
        try {
          call();
          ADD_FAILURE() << "no error";
        } catch (PeerError const& error) {
          // Whichever it names, the reason is that rank's.
          expect_parts(error.what(), {"rank " + std::to_string(error.rank()) + " refused",
                                      "recv_counts[0] is " + std::to_string(-1 - error.rank())});
        }
      }
      if (refuses) a.check_untouched();
      if (round % 10 == 0) exchange_is_right(comm, "round " + std::to_string(round));
    }
    exchange_is_right(comm);
  });
}

TEST_P(Refusals, OfOneCallWhileOthersAreOpen) {
  run_ranks(ranks(), small_slots(), [](int rank, Communicator& comm) {
    comm.prepare();
    for (int round = 0; round < 5; ++round) {
      auto const culprit = round % comm.size();
      std::deque<Arguments> all;
      std::vector<Request> requests(6);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        auto& a = all.emplace_back(comm, 2500);
        bool const bad = i % 2 == 1;
        if (bad && rank == culprit) a.send_displs[1] = -6;
        if (bad && rank == culprit) {
          expect_parts(raised<UsageError>([&] { static_cast<void>(a.post(comm)); }),
                       {"ialltoallv", "send_displs[1] is -6"});
        } else {
          requests[i] = a.post(comm);
        }
        static_cast<void>(comm.stats());
      }
      for (auto const i : {5U, 0U, 1U, 4U, 2U, 3U}) {
        if (i % 2 == 0) {
          requests[i].wait();
          all[i].check();
        } else if (rank != culprit) {
          expect_parts(peer_error([&] { requests[i].wait(); }, culprit), {"refused", "send_displs[1] is -6"});
          EXPECT_FALSE(requests[i].active());
        }
      }
    }
    exchange_is_right(comm);
  });
}

TEST_P(Refusals, OfAPolledRequestComeOutOfTest) {
  run_ranks(ranks(), small_slots(), [](int rank, Communicator& comm) {
    comm.prepare();
    Arguments a(comm);
    if (rank == 1) {
      a.recv = nullptr;
      static_cast<void>(raised<UsageError>([&] { static_cast<void>(a.post(comm)); }));
    } else {
      auto request = a.post(comm);
      auto const poll = [&] {
        while (!request.test()) std::this_thread::yield();
      };
      expect_parts(peer_error(poll, 1), {"recv is null"});
      EXPECT_FALSE(request.active());
      EXPECT_TRUE(request.test());
    }
    exchange_is_right(comm);
  });
}

TEST(RefusalsBeforePrepare, NonblockingCallOnAll) {
  run_ranks(3, [](int, Communicator& comm) {
    for (int i = 0; i < 3; ++i) {
      Arguments a(comm);
      expect_parts(raised<UsageError>([&] { static_cast<void>(a.post(comm)); }),
                   {"ialltoallv", "not prepared", "prepare()"});
    }
    exchange_is_right(comm);
    Arguments a(comm);
    a.post(comm).wait();
    a.check();
  });
}

TEST(RefusalsBeforePrepare, NonblockingCallOnOneIsToldToTheOthers) {
  run_ranks(3, [](int rank, Communicator& comm) {
    Arguments a(comm);
    if (rank == 2) {
      expect_parts(raised<UsageError>([&] { static_cast<void>(a.post(comm)); }), {"not prepared"});
    } else {
      expect_parts(peer_error([&] { a.run(comm); }, 2), {"rank 2 refused", "ialltoallv", "not prepared"});
    }
    comm.prepare();
    a.post(comm).wait();
    a.check();
  });
}

TEST(RefusalsBeforePrepare, BadArgumentsAtTheVeryFirstCall) {
  for (auto const& start : kStarts) {
    Making with;
    with.start = start;
    run_ranks(3, with, [](int rank, Communicator& comm) {
      refused_call(comm, rank == 1, 1);
      exchange_is_right(comm);
    });
  }
}

TEST(RefusalsAlone, OfASingleRank) {
  run_ranks(1, [](int, Communicator& comm) {
    for (int i = 0; i < 200; ++i) refused_call(comm, true, 0);
    exchange_is_right(comm);
  });
}

TEST(RefusalsAlone, SixtyFiveWithNobodyListeningFailTheCommunicator) {
  std::atomic<bool> over{false};
  Making with;
  with.options.timeout = std::chrono::milliseconds(300);
  run_ranks(2, with, [&](int rank, Communicator& comm) {
    if (rank == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    for (int i = 0; i < 64; ++i) refused_call(comm, true, 0);
    refused_call(comm, true, 0);  // the caller's mistake goes first, even where nobody can be told of it
    EXPECT_FALSE(comm.usable());
    expect_parts(raised<TimeoutError>([&] { comm.barrier(); }), {"refusal", "rank 1", "call 65", "300 ms"});
    over = true;
  });
}

}  // namespace
}  // namespace davit::test
