// SPDX-License-Identifier: Apache-2.0
/// @file
/// The world's failures: deadlines, peers that leave, two threads inside. A failed communicator stays failed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "tests/runtime/arguments.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/nodes.hpp"

namespace davit::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Making with_deadline(milliseconds deadline) {
  Making with;
  with.options.timeout = deadline;
  return with;
}

struct Phase {
  char const* name;
  std::function<void(Communicator&)> call;
};

std::vector<Phase> const kPhases{
    {"barrier", [](Communicator& comm) { comm.barrier(); }},
    {"alltoallv", [](Communicator& comm) { Arguments(comm, 50000).run(comm); }},
    {"alltoallv_init", [](Communicator& comm) { static_cast<void>(Arguments(comm).plan(comm)); }},
    {"alltoallv",
     [](Communicator& comm) {
       Arguments a(comm);
       a.post(comm).wait();
     }},
    {"allgatherv",
     [](Communicator& comm) {
       Arguments a(comm);
       comm.allgatherv(a.send, 4, i32, a.recv, a.recv_counts, a.recv_displs, i32);
     }},
    {"reduce_scatterv",
     [](Communicator& comm) {
       Arguments a(comm);
       comm.reduce_scatterv(a.send, a.recv, a.send_counts, f32);
     }},
};

TEST(TimeOut, NamesRankPhaseAndCallAndFailsForGood) {
  if (is_mixed()) GTEST_SKIP() << "ranks on the host move on longer, and hear it of those on GPUs";
  for (auto const& phase : kPhases) {
    for (auto const order : {HostOrder::eager, HostOrder::queues}) {
      std::atomic<int> over{0};
      auto with = with_deadline(milliseconds(200));
      with.options.first_timeout = stretched(std::chrono::seconds(10));
      with.options.host_order = order;
      run_ranks(3, with, [&](int rank, Communicator& comm) {
        comm.prepare();
        if (rank == 2) {
          while (over < 2) std::this_thread::yield();
          // And who comes late learns that it was given up: in this call, or where that needs nobody, in the next.
          auto const late = [&] {
            phase.call(comm);
            comm.barrier();
          };
          expect_parts(peer_error(late, 2), {"has failed", "deadline"});
          EXPECT_FALSE(comm.usable());
          return;
        }
        auto const start = Clock::now();
        auto const text = raised<TimeoutError>([&] {
          try {
            phase.call(comm);
          } catch (TimeoutError const& error) {
            EXPECT_EQ(error.rank(), 2);
            throw;
          }
        });
        auto const took = Clock::now() - start;
        EXPECT_GE(took, milliseconds(200));
        EXPECT_LT(took, milliseconds(200) + stretched(milliseconds(1000)));
        expect_parts(text, {std::string(phase.name) + " ", "200 ms", "rank 2", "communicator 'test'",
                            "call " + std::to_string(comm.calls()) + "]"});
        EXPECT_FALSE(comm.usable());
        auto const again = Clock::now();
        for (auto const& later : kPhases) {
          EXPECT_EQ(raised<TimeoutError>([&] { later.call(comm); }), text);
        }
        EXPECT_EQ(raised<TimeoutError>([&] { static_cast<void>(comm.split(0)); }), text);
        EXPECT_EQ(raised<TimeoutError>([&] { static_cast<void>(comm.allocate(8)); }), text);
        EXPECT_LT(Clock::now() - again, stretched(milliseconds(200))) << "at once";
        ++over;
      });
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(TimeOut, OpenRequestsAllRaiseIt) {
  std::atomic<bool> over{false};
  auto with = with_deadline(milliseconds(200));
  with.options.first_timeout = stretched(std::chrono::seconds(10));
  run_ranks(2, with, [&](int rank, Communicator& comm) {
    comm.prepare();
    if (rank == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    Arguments a(comm);
    Arguments b(comm);
    auto first = a.post(comm);
    auto const number = comm.calls();
    auto second = b.post(comm);
    auto const text = raised<TimeoutError>([&] { second.wait(); });
    expect_parts(text, {"rank 1", "call " + std::to_string(number)});
    EXPECT_EQ(raised<TimeoutError>([&] { first.wait(); }), text);
    over = true;
  });
}

TEST(TimeOut, StrikesWithoutAnybodyWaiting) {
  // The helper alone finds that a dropped request can never complete.
  std::atomic<bool> over{false};
  auto with = with_deadline(milliseconds(100));
  with.options.first_timeout = stretched(std::chrono::seconds(10));
  run_ranks(2, with, [&](int rank, Communicator& comm) {
    comm.prepare();
    if (rank == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    Arguments a(comm);
    { auto const dropped = a.post(comm); }
    auto const end = Clock::now() + stretched(std::chrono::seconds(5));
    while (comm.usable() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_FALSE(comm.usable());
    over = true;
  });
}

TEST(TimeOut, FirstCollectiveHasItsOwn) {
  auto with = with_deadline(milliseconds(150));
  with.options.first_timeout = stretched(std::chrono::seconds(10));
  std::atomic<bool> over{false};
  auto const thrown = play_ranks(2, [&](int rank, std::shared_ptr<Bootstrap> const& bootstrap) {
    auto options = with.options;
    options.timeout = stretched(std::chrono::seconds(10));  // creation is not what is tested
    auto const before = made(bootstrap, options);
    auto comm = made(bootstrap, with.options);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(500));
    comm.barrier();
    if (rank == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    expect_parts(raised<TimeoutError>([&] { comm.barrier(); }), {"deadline of 150 ms", "call 2"});
    over = true;
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

TEST(TimeOut, FirstOneIsGivenInTheText) {
  auto with = with_deadline(stretched(std::chrono::seconds(20)));
  with.options.first_timeout = milliseconds(150);
  std::atomic<bool> over{false};
  run_ranks(2, with, [&](int rank, Communicator& comm) {
    if (rank == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    expect_parts(raised<TimeoutError>([&] { comm.barrier(); }), {"deadline of 150 ms", "rank 1"});
    over = true;
  });
}

TEST(TimeOut, InSplitOrAllocateFailsTheCommunicatorToo) {
  for (bool const split : {true, false}) {
    std::atomic<bool> over{false};
    auto with = with_deadline(milliseconds(200));
    run_ranks(2, with, [&](int rank, Communicator& comm) {
      if (rank == 1) {
        while (!over) std::this_thread::yield();
        return;
      }
      auto const call = [&] {
        if (split) static_cast<void>(comm.split(0));
        if (!split) static_cast<void>(comm.allocate(8));
      };
      expect_parts(raised<TimeoutError>(call), {"rank 1", "communicator 'test'"});
      EXPECT_FALSE(comm.usable());
      EXPECT_FALSE(raised<TimeoutError>([&] { comm.barrier(); }).empty());
      over = true;
    });
  }
}

/// Who gave up may use its buffers again, so who comes late must not take what is in them for the call's data.
TEST(TimeOut, LateRankGetsTheDataOrAnError) {
  for (auto const path : {Path::slots, Path::direct}) {
    for (auto const form : {0, 1}) {
      std::atomic<bool> over{false};
      auto with = with_deadline(milliseconds(200));
      with.options.first_timeout = stretched(std::chrono::seconds(10));
      with.options.path = path;
      run_ranks(2, with, [&](int rank, Communicator& comm) {
        comm.prepare();
        // Rank 1 gives nothing, so that it needs nothing of rank 0 but its data.
        Arguments a(comm, 3000);
        if (rank == 1) a.send_counts[0] = 0;
        if (rank == 0 || form == 1) a.recv_counts[1] = 0;
        auto const call = [&] {
          if (form == 0) return a.run(comm);
          comm.allgatherv(a.send, rank == 0 ? 3000 : 0, i32, a.recv, a.recv_counts, a.recv_displs, i32);
        };
        if (rank == 0) {
          static_cast<void>(raised<TimeoutError>(call));
          std::fill(a.source.begin(), a.source.end(), -1);
          over = true;
          while (over) std::this_thread::yield();
          return;
        }
        while (!over) std::this_thread::yield();
        try {
          call();
          auto const first = reinterpret_cast<std::int32_t const*>(a.target.data())[0];
          EXPECT_EQ(first, form == 0 ? 101000 : 100000) << "wrong data in silence, path " << static_cast<int>(path);
        } catch (PeerError const& error) {
          EXPECT_EQ(error.rank(), 1);
        }
        over = false;
      });
    }
  }
}

TEST(Leaving, IsAPeerErrorForThoseWhoCall) {
  for (int turn = 0; turn < 20; ++turn) {
    run_ranks(3, [&](int rank, Communicator& comm) {
      if (turn % 2 == 0) comm.prepare();
      if (rank == 1) {
        if (turn % 4 < 2) std::this_thread::sleep_for(milliseconds(5));
        comm = Communicator();
        return;
      }
      auto const text = peer_error([&] { Arguments(comm, 3000).run(comm); }, 1);
      expect_parts(text,
                   {"alltoallv", "rank 1 has destroyed its communicator", "call " + std::to_string(comm.calls())});
      EXPECT_FALSE(comm.usable());
      EXPECT_EQ(peer_error([&] { comm.barrier(); }, 1), text);
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Leaving, BehindARefusalIsNoHarm) {
  // The refuser returns at once, and may be gone before the others have looked.
  for (int turn = 0; turn < 20; ++turn) {
    run_ranks(3, [&](int rank, Communicator& comm) {
      Arguments a(comm, 3000);
      if (rank == 1) {
        a.send = nullptr;
        static_cast<void>(raised<UsageError>([&] { a.run(comm); }));
        comm = Communicator();
      } else {
        std::this_thread::sleep_for(milliseconds(turn % 3));
        expect_parts(peer_error([&] { a.run(comm); }, 1), {"rank 1 refused", "send is null"});
        EXPECT_TRUE(comm.usable());
      }
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(TwoThreads, TheSecondIsRefusedAndNobodyElseNotices) {
  if (wire_is_for_one_thread()) GTEST_SKIP() << "refused for another reason";
  std::atomic<bool> refused{false};
  run_ranks(2, [&](int rank, Communicator& comm) {
    comm.prepare();
    auto const before = comm.calls();
    if (rank == 1) {
      while (!refused) std::this_thread::yield();
      exchange_is_right(comm);
    } else {
      std::exception_ptr thrown;
      std::thread first([&] {
        try {
          exchange_is_right(comm);
        } catch (...) {
          thrown = std::current_exception();
        }
      });
      while (comm.calls() == before) std::this_thread::yield();  // it is inside, and waits for rank 1
      std::vector<std::function<void()>> const calls{[&] { comm.barrier(); },
                                                     [&] { Arguments(comm).run(comm); },
                                                     [&] { static_cast<void>(Arguments(comm).post(comm)); },
                                                     [&] { static_cast<void>(Arguments(comm).plan(comm)); },
                                                     [&] { static_cast<void>(comm.split(0)); },
                                                     [&] { static_cast<void>(comm.dup()); },
                                                     [&] { static_cast<void>(comm.allocate(8)); }};
      for (auto const& call : calls) expect_parts(raised<UsageError>(call), {"two threads", "'test'", "dup"});
      EXPECT_EQ(comm.calls(), before + 1);
      refused = true;
      first.join();
      EXPECT_EQ(text_of(thrown), "");
    }
    exchange_is_right(comm);
  });
}

}  // namespace
}  // namespace davit::test
