// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks that disagree in the middle of things: MismatchError on all of them, and the next call works. A routing that
/// is null or of another group: UsageError there, PeerError on the others. A rank that never comes: TimeoutError.
#include <gtest/gtest.h>

#include <latch>

#include "tests/moe/player.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

constexpr int kRanks = 3;

ExpertGroupOptions small() { return {.experts = 6, .top_k = 2, .hidden = 16, .max_tokens = 4, .dtype = f32}; }

Batch small_batch() {
  return chosen_batch(kRanks, small(), {3, 4, 2}, {0.5F, 1.5F}, [](int r, std::int64_t t) {
    return std::vector<std::int64_t>{(r + t) % 6, (r + 2 * t + 3) % 6};
  });
}

/// What a rank has at hand.
struct Hand {
  Player const& player;
  Routing& routing;
  Routing& other;  ///< of the same group, also dispatched
  std::vector<std::byte> x = player.rows(0, 256);
  std::vector<std::byte> rows = player.expert_rows(Layout::by_expert, 1);
  std::vector<std::byte> out = std::vector<std::byte>(4096);

  void dispatch(Routing& of, DispatchOptions const& options = {}) {
    static_cast<void>(player.group().dispatch(of, x.data(), options));
  }
  void combine(Routing& of, CombineOptions const& options = {}) {
    player.group().combine(of, rows.data(), out.data(), options);
  }
};
using Play = std::function<void(Hand&)>;

/// Rank 2 makes another call than ranks 0 and 1. All raise MismatchError; each of `parts` stands in the text of rank 0
/// and of rank 2.
void expect_mismatch(Play const& most, Play const& other, std::vector<std::string> const& parts) {
  auto const batch = small_batch();
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto first = player.route();
    auto second = player.route();
    player.dispatch(first);
    player.dispatch(second);
    Hand hand{player, first, second};
    auto const text = raised<MismatchError>([&] { rank == 2 ? other(hand) : most(hand); });
    if (rank != 1) expect_parts(text, parts);
    expect_parts(text, {"call " + std::to_string(comm.calls())});
    EXPECT_TRUE(comm.usable());
    player.dispatch(second);
    player.combine(first);
    play_ordinary(kRanks, rank, group);
  });
}

Play dispatch_with(DispatchOptions const& options) {
  return [=](Hand& hand) { hand.dispatch(hand.routing, options); };
}
Play combine_with(CombineOptions const& options) {
  return [=](Hand& hand) { hand.combine(hand.routing, options); };
}
void dispatch(Hand& hand) { hand.dispatch(hand.routing); }
void combine(Hand& hand) { hand.combine(hand.routing); }
void route(Hand& hand) { static_cast<void>(hand.player.route()); }

TEST(MoeMismatch, OtherOperations) {
  expect_mismatch(dispatch, combine, {"dispatch", "combine", "rank 2"});
  expect_mismatch(combine, dispatch, {"dispatch", "combine", "rank 2"});
  expect_mismatch(route, dispatch, {"route", "dispatch"});
  expect_mismatch(combine, route, {"route", "combine"});
}

TEST(MoeMismatch, OtherRowWidths) {
  expect_mismatch(dispatch_with({.row_bytes = 64}), dispatch_with({.row_bytes = 48}),
                  {"row_bytes of x is", "64 on rank", "48 on rank"});
}

TEST(MoeMismatch, OtherPayloads) {
  static std::byte const row[256]{};
  static RowArray const narrow[] = {{row, 8}};
  static RowArray const wide[] = {{row, 12}};
  static RowArray const two[] = {{row, 4}, {row, 4}};
  static RowArray const uneven[] = {{row, 5}, {row, 3}};
  expect_mismatch(dispatch_with({.payloads = narrow}), dispatch_with({.payloads = wide}),
                  {"payloads differ", "1 of 8 bytes", "1 of 12 bytes"});
  expect_mismatch(dispatch_with({.payloads = narrow}), dispatch_with({.payloads = two}),
                  {"payloads differ", "1 of 8 bytes", "2 of 8 bytes"});
  expect_mismatch(dispatch_with({.payloads = two}), dispatch_with({.payloads = uneven}), {"payloads differ in width"});
  expect_mismatch(dispatch_with({.payloads = narrow}), dispatch, {"payloads differ", "1 of 8 bytes", "0 of 0 bytes"});
}

TEST(MoeMismatch, OtherRoutings) {
  auto const of_other = [](Hand& hand) { hand.dispatch(hand.other); };
  expect_mismatch(dispatch, of_other, {"routing 0", "routing 1"});
  auto const combine_other = [](Hand& hand) { hand.combine(hand.other); };
  expect_mismatch(combine, combine_other, {"routing 0", "routing 1"});
}

TEST(MoeMismatch, OtherSums) {
  expect_mismatch(combine, combine_with({.reduce = Reduce::by_k}), {"grouped", "by_k"});
  expect_mismatch(combine_with({.weighting = Weighting::by_caller}), combine, {"at_combine", "by_caller"});
}

/// Rank 1 makes a call with a routing that cannot be; `text` is what it learns.
void expect_refused(std::function<void(ExpertGroup&, Routing&, Routing&)> const& wrong, Play const& right,
                    std::string const& part) {
  auto const batch = small_batch();
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    ExpertGroup elsewhere(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    auto foreign = Player(batch, rank, elsewhere).route();
    player.dispatch(routing);
    Hand hand{player, routing, foreign};
    if (rank == 1) {
      Routing moved = std::move(routing);
      expect_parts(raised<UsageError>([&] { wrong(group, routing, foreign); }), {part});
      routing = std::move(moved);
    } else {
      expect_parts(raised<PeerError>([&] { right(hand); }), {"rank 1 refused", part});
    }
    player.dispatch(routing);
    player.combine(routing);
    Player(batch, rank, elsewhere).dispatch(foreign);
  });
}

TEST(MoeMismatch, RoutingsThatAreNullOrForeign) {
  static std::byte const x[4096]{};
  static std::byte out[4096];
  expect_refused([](ExpertGroup& g, Routing& gone, Routing&) { static_cast<void>(g.dispatch(gone, x)); }, dispatch,
                 "dispatch: the routing is null");
  expect_refused([](ExpertGroup& g, Routing& gone, Routing&) { g.combine(gone, x, out); }, combine,
                 "combine: the routing is null");
  expect_refused([](ExpertGroup& g, Routing&, Routing& foreign) { static_cast<void>(g.dispatch(foreign, x)); },
                 dispatch, "dispatch: the routing is of expert group 2, must be of expert group 1");
  expect_refused([](ExpertGroup& g, Routing&, Routing& foreign) { g.combine(foreign, x, out); }, combine,
                 "combine: the routing is of expert group 2, must be of expert group 1");
  Routing none;
  EXPECT_THROW(static_cast<void>(none.tokens()), UsageError);
  EXPECT_THROW(static_cast<void>(none.rows(Layout::by_expert)), UsageError);
  EXPECT_THROW(static_cast<void>(none.counts()), UsageError);
}

/// Rank 2 does not make the call `late` names; the others are told so.
void expect_time_out(Play const& late, std::string const& phase) {
  auto const batch = small_batch();
  Making making;
  making.options.timeout = std::chrono::milliseconds(2000);
  making.options.name = "impatient";
  std::latch both_gave_up(2);
  run_ranks(kRanks, making, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    player.dispatch(routing);
    Hand hand{player, routing, routing};
    auto const number = comm.calls() + 1;
    if (rank == 2) {
      both_gave_up.wait();
      try {
        late(hand);  // a route may end well here: all that it needs had come
      } catch (PeerError const&) {
      }
      EXPECT_THROW(dispatch(hand), PeerError);
    } else {
      std::string text;
      try {
        late(hand);
        ADD_FAILURE() << phase << " came to an end without rank 2";
      } catch (TimeoutError const& error) {
        EXPECT_EQ(error.rank(), 2);
        text = error.what();
      } catch (PeerError const& error) {  // the other one gave up first, which it says
        EXPECT_EQ(error.rank(), 2);
        text = error.what();
      }
      expect_parts(text, {phase, "rank 2", "impatient", "call " + std::to_string(number)});
      both_gave_up.count_down();
    }
    EXPECT_FALSE(comm.usable());
    EXPECT_THROW(route(hand), Error);  // at once, and for good
  });
}

TEST(MoeDeadline, ARankThatNeverComesIsNamed) {
  expect_time_out(dispatch, "dispatch passed its deadline");
  expect_time_out(combine, "combine passed its deadline");
  expect_time_out(route, "route passed its deadline");
}

TEST(MoeDeadline, ARoutingThatIsNeverDroppedIsNamed) {
  auto batch = small_batch();
  batch.options.routings = 1;
  Making making;
  making.options.timeout = std::chrono::milliseconds(2000);
  std::latch both_gave_up(2);
  run_ranks(kRanks, making, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    if (rank == 2) {
      both_gave_up.wait();
      return;
    }
    routing = Routing();
    try {
      routing = player.route();
      ADD_FAILURE() << "an area was written over that rank 2 still reads";
    } catch (Error const& error) {  // the second to give up has it from the first
      expect_parts(error.what(), {"route passed its deadline", "waiting for rank 2"});
    }
    both_gave_up.count_down();
  });
}

}  // namespace
