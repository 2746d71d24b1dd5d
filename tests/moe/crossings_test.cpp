// SPDX-License-Identifier: Apache-2.0
/// @file
/// How often rows cross links: a token's row goes up once, however many ranks need it, and comes down once at each rank
/// that needs it; on the way back one row a (token, rank) goes up and one comes down. Nothing is taken unneeded.
#include <gtest/gtest.h>

#include "tests/moe/player.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

struct Counted {
  Crossings rows;
  Crossings bytes;
};

template <class Play>
Counted counted(Communicator& comm, Play const& play) {
  auto const before = comm.stats();
  play();
  auto const after = comm.stats();
  EXPECT_EQ(after.rows_slack, 0U);
  EXPECT_EQ(after.bytes_direct, 0U);
  EXPECT_EQ(after.calls, before.calls + 1);
  return {{after.rows_up - before.rows_up, after.rows_down - before.rows_down},
          {after.bytes_up - before.bytes_up, after.bytes_down - before.bytes_down}};
}

void expect_counts(Counted const& counted, Crossings const& rows, std::size_t row_bytes, std::string const& what) {
  EXPECT_EQ(counted.rows.up, rows.up) << what;
  EXPECT_EQ(counted.rows.down, rows.down) << what;
  EXPECT_EQ(counted.bytes.up, rows.up * row_bytes) << what;
  EXPECT_EQ(counted.bytes.down, rows.down * row_bytes) << what;
}

void play_counted(Batch const& batch, Making const& making) {
  run_ranks(batch.ranks, making, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    Routing routing;
    auto const routed = counted(comm, [&] { routing = player.route(); });
    expect_counts(routed, {}, 0, batch.text() + ": route");
    auto const partial = size_of(batch.options.partial_dtype.value_or(batch.options.dtype));
    auto const hidden = static_cast<std::size_t>(batch.options.hidden);
    for (auto const layout : {Layout::by_source, Layout::by_expert, Layout::expert_slots}) {
      auto const down = counted(comm, [&] { player.dispatch(routing, {.layout = layout, .payloads = {3, 40}}); });
      expect_counts(down, dispatch_crossings(batch, rank), batch.row_bytes() + 43, batch.text() + ": dispatch");
      CombineWish wish;
      wish.sum.layout = layout;
      if (layout == Layout::by_source) wish.sum.weighting = Weighting::by_caller;
      auto const back = counted(comm, [&] { player.combine(routing, wish); });
      expect_counts(back, combine_crossings(batch, rank, Reduce::grouped), hidden * partial,
                    batch.text() + ": grouped");
      if (layout == Layout::by_source) continue;
      wish.sum.reduce = Reduce::by_k;
      auto const all = counted(comm, [&] { player.combine(routing, wish); });
      expect_counts(all, combine_crossings(batch, rank, Reduce::by_k), batch.row_bytes(), batch.text() + ": by_k");
    }
  });
}

TEST(MoeCrossings, OfRandomBatchesOnEightRanks) {
  Random random(61);
  for (int i = 0; i < 6; ++i) {
    auto options = random_options(random, 8);
    options.experts = random.between(8, 64);
    Making making;
    making.options.slot_bytes = i % 2 == 0 ? 4096 : 65536;
    play_counted(random_batch(random, 8, options), making);
  }
}

TEST(MoeCrossings, ARowThatAllNeedGoesUpOnce) {
  auto const batch =
      chosen_batch(8, {.experts = 16, .top_k = 16, .hidden = 40, .max_tokens = 5}, {5, 0, 0, 0, 0, 0, 0, 0},
                   std::vector<float>(16, 0.5F), [](int, std::int64_t) {
                     return std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
                   });
  EXPECT_EQ(dispatch_crossings(batch, 0), (Crossings{5, 0}));
  EXPECT_EQ(dispatch_crossings(batch, 3), (Crossings{0, 5}));  // once, though two of its experts want it
  EXPECT_EQ(combine_crossings(batch, 0, Reduce::grouped), (Crossings{0, 35}));
  EXPECT_EQ(combine_crossings(batch, 3, Reduce::grouped), (Crossings{5, 0}));
  EXPECT_EQ(combine_crossings(batch, 3, Reduce::by_k), (Crossings{10, 0}));
  play_counted(batch, {});
}

TEST(MoeCrossings, RowsThatStayCrossNothing) {
  auto const batch = chosen_batch(4, {.experts = 8, .top_k = 2, .hidden = 40, .max_tokens = 6}, {6, 6, 6, 6},
                                  {0.5F, 0.5F}, [](int rank, std::int64_t) {
                                    return std::vector<std::int64_t>{2 * rank, 2 * rank + 1};
                                  });
  EXPECT_EQ(dispatch_crossings(batch, 1), (Crossings{0, 0}));
  EXPECT_EQ(combine_crossings(batch, 1, Reduce::by_k), (Crossings{0, 0}));
  play_counted(batch, {});
  run_ranks(4, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    auto const before = comm.stats();
    player.dispatch(routing);
    EXPECT_EQ(comm.stats().bytes_kept - before.bytes_kept, 6 * batch.row_bytes());
    EXPECT_EQ(comm.stats().chunks_up, before.chunks_up);
    EXPECT_EQ(comm.stats().bytes_ids, 6U * 2 * 8);
  });
}

}  // namespace
