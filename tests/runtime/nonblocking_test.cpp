// SPDX-License-Identifier: Apache-2.0
/// @file
/// Nonblocking and persistent alltoallv: several open, waited for in any order, polled, dropped, behind blocking calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "davit/error.hpp"
#include "tests/runtime/circumstances.hpp"
#include "tests/support/access.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/nodes.hpp"

namespace davit::test {
namespace {

class Nonblocking : public UnderCircumstances {
 protected:
  [[nodiscard]] static Making small_slots() {
    auto with = setup();
    with.options.slot_bytes = 4096;
    with.options.slots = 1;
    return with;
  }
  /// Exchanges, alike on all ranks, and this rank's buffers for them.
  struct Work {
    Work(int count, int rank, std::uint64_t stream) {
      Random same(stream);
      for (int i = 0; i < count; ++i) {
        exchanges.emplace_back(same, ranks(), random_matrix(same, ranks(), {}));
        buffers.emplace_back(exchanges.back(), rank);
      }
    }
    void check() const {
      for (auto const& one : buffers) one.check();
    }
    std::deque<Exchange> exchanges;
    std::deque<Buffers> buffers;
  };
};
INSTANTIATE_TEST_SUITE_P(All, Nonblocking,
                         testing::Values(Circumstances{1}, Circumstances{2}, Circumstances{3, HostOrder::queues},
                                         Circumstances{3, HostOrder::submission}, Circumstances{4, {}, kStarts[1]},
                                         Circumstances{4, {}, kStarts[2]}, Circumstances{8}),
                         circumstances_name);

TEST_P(Nonblocking, SeveralOpenWaitedForInAnyOrder) {
  run_ranks(ranks(), small_slots(), [&](int rank, Communicator& comm) {
    comm.prepare();
    Random mine(static_cast<std::uint64_t>(rank));  // each rank waits in an order of its own
    for (int round = 0; round < 5; ++round) {
      Work work(6, rank, static_cast<std::uint64_t>(1000 + round));
      std::vector<Request> requests;
      for (auto& buffers : work.buffers) requests.push_back(buffers.post(comm));
      std::shuffle(requests.begin(), requests.end(), mine.engine());
      for (auto& request : requests) {
        EXPECT_TRUE(request.active());
        request.wait();
        EXPECT_FALSE(request.active());
        request.wait();  // of an inactive one: nothing
      }
      work.check();
    }
  });
}

TEST_P(Nonblocking, TestNeverWaitsAndEndsTrue) {
  run_ranks(ranks(), small_slots(), [&](int rank, Communicator& comm) {
    comm.prepare();
    Work work(3, rank, 5);
    std::vector<Request> requests;
    for (auto& buffers : work.buffers) requests.push_back(buffers.post(comm));
    std::size_t open = requests.size();
    while (open > 0) {
      open = 0;
      for (auto& request : requests) open += request.test() ? 0U : 1U;
      std::this_thread::yield();
    }
    for (auto& request : requests) {
      EXPECT_FALSE(request.active());
      EXPECT_TRUE(request.test());
    }
    work.check();
  });
}

TEST_P(Nonblocking, DroppedRequestStillCompletes) {
  run_ranks(ranks(), small_slots(), [&](int rank, Communicator& comm) {
    comm.prepare();
    Work work(4, rank, 6);
    for (std::size_t i = 0; i < 4; ++i) {
      auto request = work.buffers[i].post(comm);
      if ((i + static_cast<std::size_t>(rank)) % 2 == 0) {
        { auto const dropped = std::move(request); }
      } else {
        request.wait();
      }
    }
    comm.barrier();  // behind all of them
    work.check();
  });
}

TEST_P(Nonblocking, BlockingCallsRunBehindOpenOnes) {
  run_ranks(ranks(), small_slots(), [&](int rank, Communicator& comm) {
    comm.prepare();
    Work work(6, rank, 7);
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 6; ++i) {
      if (i % 3 == 2) {
        work.buffers[i].run(comm);
      } else {
        requests.push_back(work.buffers[i].post(comm));
      }
    }
    std::reverse(requests.begin(), requests.end());
    for (auto& request : requests) request.wait();
    work.check();
  });
}

/// Chunks that need all ranks again and again, none of which calls davit meanwhile: the helper thread alone is at it.
TEST_P(Nonblocking, ProgressesWhileTheProgramIsElsewhere) {
  if (wire_is_for_one_thread()) GTEST_SKIP() << "nobody may progress it then";
  if (ranks() < 2) GTEST_SKIP() << "nobody to wait for";
  auto with = small_slots();
  if (with.options.host_order == HostOrder::eager) with.options.path = Path::slots;
  run_ranks(ranks(), with, [&](int rank, Communicator& comm) {
    comm.prepare();
    Random same(8);
    std::uint64_t const bytes = 20 * 4096;
    Exchange const exchange(same, ranks(), Matrix(static_cast<std::size_t>(ranks() * ranks()), bytes));
    Buffers buffers(exchange, rank);
    auto request = buffers.post(comm);
    auto& state = davit::detail::Access::state(comm);
    auto const is_through = [&] {
      auto const held = state.lock();
      return state.stats.bytes_down == bytes * static_cast<std::uint64_t>(ranks() - 1) && state.host.engine().idle();
    };
    auto const end = std::chrono::steady_clock::now() + stretched(std::chrono::seconds(10));
    while (!is_through() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(is_through()) << "rank " << rank;
    request.wait();
    buffers.check();
  });
}

TEST_P(Nonblocking, PlanIsStartedAgainAndAgain) {
  run_ranks(ranks(), small_slots(), [&](int rank, Communicator& comm) {
    Random same(9);
    Exchange const first(same, ranks(), random_matrix(same, ranks(), {}));
    Exchange const second(same, ranks(), made_symmetric(random_matrix(same, ranks(), {}), ranks()));
    Buffers one(first, rank);
    Buffers two(second, rank, true);
    auto plan_one = one.plan(comm);
    auto plan_two = two.plan(comm);
    for (int round = 0; round < 10; ++round) {
      one.reset();
      two.reset();
      plan_one.start();
      if (round % 2 == 0) plan_one.wait();
      plan_two.start();
      comm.barrier();
      plan_two.wait();
      if (round % 2 == 1) {
        while (!plan_one.test()) std::this_thread::yield();
      }
      one.check();
      two.check();
      if (testing::Test::HasFailure()) return;
    }
    // Dropped while it runs.
    one.reset();
    plan_one.start();
    { auto const dropped = std::move(plan_one); }
    comm.barrier();
    one.check();
  });
}

TEST(Plans, MisuseIsRefusedLocally) {
  run_ranks(2, [](int rank, Communicator& comm) {
    Plan null;
    expect_parts(raised<UsageError>([&] { null.start(); }), {"plan is null"});
    null.wait();
    Random same(1);
    Exchange const exchange(same, 2, {8, 16, 24, 32});
    Buffers buffers(exchange, rank);
    auto plan = buffers.plan(comm);
    auto const before = comm.calls();
    plan.start();
    expect_parts(raised<UsageError>([&] { plan.start(); }), {"start", "not waited for"});
    EXPECT_EQ(comm.calls(), before + 1);
    plan.wait();
    buffers.check();
    comm.barrier();
    comm = Communicator();
    expect_parts(raised<UsageError>([&] { plan.start(); }), {"communicator is gone"});
  });
}

TEST(Requests, OutliveTheirCommunicator) {
  run_ranks(2, [](int rank, Communicator& comm) {
    comm.prepare();
    Request none;
    EXPECT_FALSE(none.active());
    none.wait();
    EXPECT_TRUE(none.test());
    Random same(1);
    Exchange const exchange(same, 2, {8, 16, 24, 32});
    Buffers buffers(exchange, rank);
    auto done = buffers.post(comm);
    comm.barrier();
    comm = Communicator();
    done.wait();  // it was complete before
    buffers.check();
  });
}

TEST(Requests, OpenAtTheEndAreAbandonedOnBothSides) {
  std::atomic<bool> gone{false};
  run_ranks(2, [&](int rank, Communicator& comm) {
    comm.prepare();
    Random same(1);
    Exchange const exchange(same, 2, {8, 16, 24, 32});
    Buffers buffers(exchange, rank);
    if (rank == 0) {
      auto request = buffers.post(comm);
      auto const number = "call " + std::to_string(comm.calls());
      comm = Communicator();
      gone = true;
      expect_parts(raised<UsageError>([&] { request.wait(); }), {"destroyed with open requests", number});
      EXPECT_FALSE(request.active());
    } else {
      while (!gone) std::this_thread::yield();
      try {
        buffers.run(comm);
        buffers.check();  // rank 0's part may have come in time
      } catch (PeerError const& error) {
        EXPECT_EQ(error.rank(), 0);
      }
    }
  });
}

}  // namespace
}  // namespace davit::test
