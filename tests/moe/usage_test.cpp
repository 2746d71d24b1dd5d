// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arguments that cannot be: UsageError with argument, value and bound on the rank that gave them, PeerError with its
/// reason on the others, and the next call works.
#include <gtest/gtest.h>

#include <functional>

#include "tests/moe/player.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

constexpr int kRanks = 3;
constexpr int kCulprit = 1;

Batch small_batch() {
  return chosen_batch(kRanks, {.experts = 6, .top_k = 2, .hidden = 16, .max_tokens = 4, .dtype = f32}, {3, 4, 2},
                      {0.5F, 1.5F}, [](int r, std::int64_t t) {
                        return std::vector<std::int64_t>{(r + t) % 6, (r + 2 * t + 3) % 6};
                      });
}

using Play = std::function<void(Player const&, Routing&)>;

/// Rank 1 makes the call `wrong`, the others make `right`; `parts` must stand in the text on all ranks.
void expect_refused(Play const& wrong, Play const& right, std::vector<std::string> const& parts) {
  auto const batch = small_batch();
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    player.dispatch(routing);
    if (rank == kCulprit) {
      expect_parts(raised<UsageError>([&] { wrong(player, routing); }), parts);
    } else {
      try {
        right(player, routing);
        ADD_FAILURE() << "rank " << rank << " should have learnt of rank 1's refusal: " << parts.front();
      } catch (PeerError const& error) {
        EXPECT_EQ(error.rank(), kCulprit);
        expect_parts(error.what(), parts);
        expect_parts(error.what(), {"rank 1 refused", "call " + std::to_string(comm.calls())});
      }
    }
    EXPECT_TRUE(comm.usable());
    player.dispatch(routing);  // the routing that lives goes on
    player.combine(routing);
    play_ordinary(kRanks, rank, group);
  });
}

void right_route(Player const& player, Routing&) { static_cast<void>(player.route()); }
void right_dispatch(Player const& player, Routing& routing) {
  auto const x = player.rows(0, player.batch().row_bytes());
  static_cast<void>(player.group().dispatch(routing, x.data()));
}
void right_combine(Player const& player, Routing& routing) {
  auto const rows = player.expert_rows(Layout::by_expert, 1);
  std::vector<float> out(1000);
  player.group().combine(routing, rows.data(), out.data());
}

template <class Id>
Play route_of(std::vector<Id> ids, std::size_t weights) {
  return [=](Player const& player, Routing&) {
    std::vector<float> const values(weights, 1.0F);
    static_cast<void>(player.group().route(std::span<Id const>(ids), values));
  };
}

Play dispatch_with(DispatchOptions const& options) {
  return [=](Player const& player, Routing& routing) {
    auto const x = player.rows(0, player.batch().row_bytes());
    static_cast<void>(player.group().dispatch(routing, x.data(), options));
  };
}

Play combine_with(CombineOptions const& options) {
  return [=](Player const& player, Routing& routing) {
    auto const rows = player.expert_rows(Layout::by_expert, 1);
    std::vector<float> out(1000);
    player.group().combine(routing, rows.data(), out.data(), options);
  };
}

TEST(MoeUsage, RouteRefusesIdsOutOfRange) {
  expect_refused(route_of<std::int32_t>({0, 1, 2, 6}, 4), right_route, {"ids[1, 1] is 6", "-1 to 5"});
  expect_refused(route_of<std::int32_t>({0, 1, -2, 5}, 4), right_route, {"ids[1, 0] is -2", "-1 to 5"});
  expect_refused(route_of<std::int64_t>({0, INT64_MAX}, 2), right_route, {"ids[0, 1] is 9223372036854775807"});
  expect_refused(route_of<std::int64_t>({std::int64_t{1} << 32, 0}, 2), right_route, {"ids[0, 0] is 4294967296"});
  expect_refused(route_of<std::int64_t>({0, 0, 0, INT64_MIN}, 4), right_route, {"ids[1, 1] is -9223372036854775808"});
}

TEST(MoeUsage, RouteRefusesSizesThatDoNotFit) {
  expect_refused(route_of<std::int32_t>({0, 1, 2}, 3), right_route, {"ids has 3 entries", "top_k 2"});
  expect_refused(route_of<std::int32_t>({0, 1, 2, 3}, 3), right_route, {"weights has 3 entries", "ids, 4"});
  expect_refused(route_of<std::int32_t>({0, 1}, 0), right_route, {"weights has 0 entries", "ids, 2"});
  expect_refused(route_of(std::vector<std::int64_t>(10, 0), 10), right_route, {"tokens is 5", "max_tokens 4"});
}

TEST(MoeUsage, DispatchRefusesNullRows) {
  expect_refused([](Player const& p, Routing& r) { static_cast<void>(p.group().dispatch(r, nullptr)); }, right_dispatch,
                 {"dispatch: x is null", "4 tokens"});
  RowArray const payloads[] = {{nullptr, 8}};
  expect_refused(dispatch_with({.payloads = payloads}), right_dispatch, {"payloads[0] is null", "4 tokens"});
}

TEST(MoeUsage, DispatchRefusesLayoutAndAlignment) {
  expect_refused(dispatch_with({.layout = static_cast<Layout>(3)}), right_dispatch, {"dispatch: layout is 3"});
  expect_refused(dispatch_with({.alignment = 0}), right_dispatch, {"dispatch: alignment is 0", "1 to 2147483647"});
  expect_refused(dispatch_with({.alignment = -8}), right_dispatch, {"dispatch: alignment is -8"});
  expect_refused(dispatch_with({.alignment = std::int64_t{1} << 31}), right_dispatch, {"alignment is 2147483648"});
}

TEST(MoeUsage, DispatchRefusesWidthsAndPayloads) {
  expect_refused(dispatch_with({.row_bytes = std::size_t{1} << 31}), right_dispatch,
                 {"row_bytes of x is 2147483648", "1 to 2147483647"});
  static std::byte const row[64]{};
  RowArray const empty[] = {{row, 4}, {row, 0}};
  expect_refused(dispatch_with({.payloads = empty}), right_dispatch, {"row_bytes of payloads[1] is 0"});
  std::vector<RowArray> const eight(8, RowArray{row, 1});
  expect_refused(dispatch_with({.payloads = eight}), right_dispatch, {"payloads has 8 arrays", "at most 7"});
}

TEST(MoeUsage, DispatchRefusesMemoryThatDoesNotFit) {
  expect_refused(
      [](Player const& player, Routing& routing) {
        auto const x = player.rows(0, player.batch().row_bytes());
        std::vector<std::byte> rows(4096);
        void* const one[] = {rows.data()};
        static_cast<void>(player.group().dispatch(routing, x.data(), ReceiveInto{rows.data(), one}));
      },
      right_dispatch, {"ReceiveInto::payloads has 1 arrays", "must have 0"});
  expect_refused(
      [](Player const& player, Routing& routing) {
        auto const x = player.rows(0, player.batch().row_bytes());
        RowArray const payloads[] = {{x.data(), 4}};
        std::vector<std::byte> rows(4096);
        void* const one[] = {rows.data()};
        static_cast<void>(
            player.group().dispatch(routing, x.data(), ReceiveInto{nullptr, one}, {.payloads = payloads}));
      },
      right_dispatch, {"ReceiveInto has a null array", "rows come"});
}

TEST(MoeUsage, CombineRefusesNullRowsAndOut) {
  expect_refused(
      [](Player const& player, Routing& routing) {
        std::vector<float> out(1000);
        player.group().combine(routing, nullptr, out.data());
      },
      right_combine, {"combine: rows is null", "rows"});
  expect_refused(
      [](Player const& player, Routing& routing) {
        auto const rows = player.expert_rows(Layout::by_expert, 1);
        player.group().combine(routing, rows.data(), nullptr);
      },
      right_combine, {"combine: out is null", "4 tokens"});
}

TEST(MoeUsage, CombineRefusesChoicesThatCannotBe) {
  expect_refused(combine_with({.layout = static_cast<Layout>(9)}), right_combine, {"combine: layout is 9"});
  expect_refused(combine_with({.alignment = 0}), right_combine, {"combine: alignment is 0", "1 to 2147483647"});
  expect_refused(combine_with({.weighting = static_cast<Weighting>(2)}), right_combine, {"combine: weighting is 2"});
  expect_refused(combine_with({.reduce = static_cast<Reduce>(7)}), right_combine, {"combine: reduce is 7"});
  expect_refused(combine_with({.out_dtype = f64}), right_combine, {"out_dtype is f64", "f32, f16 or bf16"});
  expect_refused(combine_with({.layout = Layout::by_source, .weighting = Weighting::at_combine}), right_combine,
                 {"weighting is at_combine", "by_caller", "by_source"});
  expect_refused(combine_with({.layout = Layout::by_source, .reduce = Reduce::by_k}), right_combine,
                 {"reduce is by_k", "grouped", "by_source"});
}

TEST(MoeUsage, TwoRanksMayBeWrongAtOnce) {
  auto const batch = small_batch();
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    auto const route = [&] {
      std::vector<std::int32_t> const ids{10 + rank, 0};
      static_cast<void>(group.route(std::span(ids), std::vector<float>(2)));
    };
    if (rank == 0) {
      auto const text = raised<PeerError>([&] { static_cast<void>(player.route()); });
      EXPECT_TRUE(text.find("ids[0, 0] is 11") != text.npos || text.find("ids[0, 0] is 12") != text.npos) << text;
    } else {
      expect_parts(raised<UsageError>(route), {"ids[0, 0] is " + std::to_string(10 + rank)});
    }
    player.dispatch(routing);
    play_ordinary(kRanks, rank, group);
  });
}

TEST(MoeUsage, CombineNeedsALayout) {
  auto const batch = small_batch();
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    EXPECT_NE(raised<UsageError>([&] { right_combine(player, routing); }).find("not dispatched yet"),
              std::string::npos);
    CombineWish wish;
    wish.sum.layout = Layout::expert_slots;
    player.combine(routing, wish);  // named, it needs no dispatch
  });
}

TEST(MoeUsage, ARoutingIsAskedWithinBounds) {
  auto const batch = small_batch();
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    expect_parts(raised<UsageError>([&] { static_cast<void>(routing.rows(Layout::by_expert, 0)); }),
                 {"alignment is 0"});
    expect_parts(raised<UsageError>([&] { static_cast<void>(routing.counts(static_cast<Layout>(5))); }),
                 {"layout is 5"});
    expect_parts(raised<UsageError>([&] { static_cast<void>(group.owner_of(6)); }), {"expert is 6", "0 to 5"});
    expect_parts(raised<UsageError>([&] { static_cast<void>(group.owner_of(-1)); }), {"expert is -1"});
    player.dispatch(routing);
  });
}

}  // namespace
