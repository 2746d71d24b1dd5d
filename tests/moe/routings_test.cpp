// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lives of Routing and Received: many calls on one routing, several alive, dropped in any order, the bound on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/moe/player.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

std::vector<Batch> batches_of(ExpertGroupOptions const& options, int ranks, int count, std::uint64_t stream) {
  Random random(stream);
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(random_batch(random, ranks, options));
  return batches;
}

ExpertGroupOptions options_with(int routings) {
  return {.experts = 9, .top_k = 3, .hidden = 24, .max_tokens = 8, .dtype = f32, .routings = routings};
}

TEST(MoeRoutings, OneServesManyCallsInAnyOrder) {
  auto const batches = batches_of(options_with(2), 4, 2, 31);
  run_ranks(4, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    Player const player(batches[0], rank, group);
    Player const other(batches[1], rank, group);
    auto routing = player.route();
    auto second = other.route();
    CombineWish backward;  // backward first: no dispatch has been
    backward.sum.layout = Layout::by_source;
    backward.sum.weighting = Weighting::by_caller;
    player.combine(routing, backward);
    for (int i = 0; i < 10; ++i) {
      player.dispatch(routing);
      other.dispatch(second);
      player.combine(routing);
      player.combine(routing);
      player.dispatch(routing, {.layout = Layout::by_source});
      other.combine(second);
    }
  });
}

TEST(MoeRoutings, SeveralLiveAndAreDroppedInAnyOrder) {
  constexpr int alive = 4;
  auto const batches = batches_of(options_with(alive), 4, 8 * alive, 32);
  run_ranks(4, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    Random common(33);                                  // alike on all ranks: who is used when
    Random own(34 + static_cast<std::uint64_t>(rank));  // dropping is local
    for (std::size_t first = 0; first < batches.size(); first += alive) {
      std::vector<Routing> routings;
      for (std::size_t i = 0; i < alive; ++i) {
        routings.push_back(Player(batches[first + i], rank, group).route(i % 2 == 0));
        auto const back = static_cast<std::size_t>(common.between(0, static_cast<std::int64_t>(i)));
        Player(batches[first + back], rank, group).dispatch(routings[back]);
      }
      std::vector<std::size_t> order{0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), common.engine());
      for (auto const i : order) Player(batches[first + i], rank, group).combine(routings[i]);
      std::shuffle(order.begin(), order.end(), own.engine());
      for (auto const i : order) routings[i] = Routing();
    }
  });
}

TEST(MoeRoutings, MoreThanTheBoundAreRefused) {
  auto const batches = batches_of(options_with(2), 3, 3, 35);
  run_ranks(3, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    auto first = Player(batches[0], rank, group).route();
    auto second = Player(batches[1], rank, group).route();
    Player const third(batches[2], rank, group);
    auto const route = [&] { static_cast<void>(third.route()); };
    expect_parts(raised<UsageError>(route), {"route", "ExpertGroupOptions::routings is 2"});  // on all ranks
    if (rank != 1) first = Routing();
    if (rank == 1) {
      expect_parts(raised<UsageError>(route), {"ExpertGroupOptions::routings is 2"});
    } else {
      expect_parts(raised<PeerError>(route), {"rank 1 refused", "ExpertGroupOptions::routings is 2"});
    }
    first = Routing();
    third.play();
    Player(batches[1], rank, group).dispatch(second);  // the one that lived through it
    Player(batches[1], rank, group).combine(second);
  });
}

TEST(MoeRoutings, RouteWaitsForAPeerThatDropsLate) {
  auto const batches = batches_of(options_with(1), 3, 2, 36);
  std::atomic<bool> dropped = false;
  run_ranks(3, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    auto first = Player(batches[0], rank, group).route();
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      dropped = true;
    }
    first = Routing();
    Player const player(batches[1], rank, group);
    auto second = player.route();
    EXPECT_TRUE(dropped.load());
    player.dispatch(second);
    player.combine(second);
  });
}

/// An area is not written over while a slower rank reads it.
TEST(MoeRoutings, ChoicesOfOneRoundNeverShowInAnother) {
  constexpr int ranks = 4;
  constexpr std::int64_t tokens = 2000, top_k = 4, experts = 16;
  auto const chosen = [](int round, int rank, std::int64_t at) { return (at * (round % 5) + round + rank) % experts; };
  run_ranks(ranks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, {.experts = experts, .top_k = top_k, .hidden = 4, .max_tokens = tokens, .routings = 1});
    std::vector<float> const weights(tokens * top_k, 1.0F);
    for (int round = 0; round < 60; ++round) {
      std::vector<std::int64_t> ids;
      for (std::int64_t at = 0; at < tokens * top_k; ++at) ids.push_back(chosen(round, rank, at));
      auto const routing = group.route(std::span<std::int64_t const>(ids), weights);
      std::vector<std::int64_t> expected(4 * ranks);
      for (int source = 0; source < ranks; ++source) {
        for (std::int64_t token = 0; token < tokens; ++token) {
          std::uint64_t seen = 0;  // the same expert twice counts once
          for (auto at = token * top_k; at < (token + 1) * top_k; ++at)
            seen |= std::uint64_t{1} << chosen(round, source, at);
          for (std::int64_t expert = 0; expert < 4; ++expert) {
            expected[static_cast<std::size_t>(expert * ranks + source)] +=
                static_cast<std::int64_t>(seen >> (4 * rank + expert) & 1);
          }
        }
      }
      auto const counts = routing.counts().counts;
      ASSERT_EQ(std::vector<std::int64_t>(counts.begin(), counts.end()), expected) << "round " << round;
    }
  });
}

TEST(MoeRoutings, ADropByAnotherThreadCounts) {
  auto const batches = batches_of(options_with(1), 3, 20, 37);
  run_ranks(3, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    for (auto const& batch : batches) {
      Player const player(batch, rank, group);
      auto routing = player.route();
      player.dispatch(routing);
      std::thread([gone = std::move(routing)]() mutable { gone = Routing(); }).join();
    }
  });
}

TEST(MoeRoutings, TheyOutliveTheirGroupAndCommunicator) {
  auto const batches = batches_of(options_with(2), 3, 1, 38);
  std::vector<Routing> routings(3);
  std::vector<Received> received(3);
  run_ranks(3, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    Player const player(batches[0], rank, group);
    routings[static_cast<std::size_t>(rank)] = player.route();
    received[static_cast<std::size_t>(rank)] = player.dispatch(routings[static_cast<std::size_t>(rank)]);
    comm.barrier();
  });
  run_ranks(3, [&](int rank, Communicator& comm) {  // of another communicator; check() calls nothing
    ExpertGroup group(comm, batches[0].options);
    Player const player(batches[0], rank, group);
    auto const me = static_cast<std::size_t>(rank);
    EXPECT_EQ(routings[me].tokens(), batches[0].tokens(rank));
    player.check(received[me]);
    routings[me] = Routing();
    player.check(received[me]);
  });
}

TEST(MoeRoutings, NoTokensAnywhereIsOrdinary) {
  for (int const ranks : {1, 3}) {
    auto const batch =
        chosen_batch(ranks, options_with(1), std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 0), {}, {});
    run_ranks(ranks, [&](int rank, Communicator& comm) {
      ExpertGroup group(comm, batch.options);
      auto routing = group.route(std::span<std::int64_t const>(), {});
      for (auto const layout : {Layout::by_source, Layout::by_expert, Layout::expert_slots}) {
        auto const received = group.dispatch(routing, nullptr, {.layout = layout, .alignment = 8});
        EXPECT_EQ(received.rows(), layout == Layout::expert_slots ? group.local_experts() * ranks * 8 : 0);
        group.combine(routing, nullptr, nullptr);
        Player(batch, rank, group).check(received, {.layout = layout, .alignment = 8});
      }
    });
  }
}

TEST(MoeRoutings, CallsOfOtherKindsMayComeBetween) {
  auto const batches = batches_of(options_with(2), 4, 1, 39);
  run_ranks(4, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    Player const player(batches[0], rank, group);
    comm.prepare();
    std::vector<std::int64_t> const counts(4, 3000);
    std::vector<std::int64_t> const displs{0, 3000, 6000, 9000};
    for (int round = 0; round < 5; ++round) {
      std::vector<std::int32_t> const send(12000, 100 * round + rank);
      std::vector<std::int32_t> recv(12000, -1);
      auto request = comm.ialltoallv(send.data(), counts, displs, i32, recv.data(), counts, displs, i32);
      auto routing = player.route();
      player.dispatch(routing);
      comm.barrier();
      player.combine(routing);
      request.wait();
      for (std::size_t i = 0; i < recv.size(); ++i) {
        ASSERT_EQ(recv[i], 100 * round + static_cast<std::int32_t>(i / 3000));
      }
    }
  });
}

TEST(MoeRoutings, NumbersThatWrapDoNotShow) {
  auto const batches = batches_of(options_with(3), 4, 1, 40);
  Making making;
  making.start = {0xffff'ffe0U, 0xffff'fff0U};
  making.options.slot_bytes = 4096;
  making.options.slots = 1;
  run_ranks(4, making, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batches[0].options);
    for (int i = 0; i < 40; ++i) Player(batches[0], rank, group).play();
    EXPECT_LT(comm.calls(), 1000U);  // it has wrapped
  });
}

}  // namespace
