// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cases that ask who receives how many rows: ranks that send or receive nothing, uneven and crowded batches, odd
/// bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/moe/cases.hpp"

namespace {

using namespace davit;
using namespace davit::test;
using Numbers = std::vector<std::int64_t>;

TEST(MoeCases, A1_SourceRankWithZeroTokens) {
  auto const batch =
      case_batch(4, {.experts = 24, .top_k = 6, .hidden = 64, .max_tokens = 16}, {0, 4, 4, 4},
                 std::vector<float>(6, 0.125F), [](int, std::int64_t) { return Numbers{0, 1, 2, 3, 4, 5}; });
  play_case(batch, [](Player const& player, Communicator&) {
    auto routing = player.route();
    EXPECT_EQ(routing.rows(Layout::by_expert), player.rank() == 0 ? 72 : 0);
    EXPECT_EQ(listed(routing.counts().expert_counts), Numbers(6, player.rank() == 0 ? 12 : 0));
    auto const out = exchange(player, routing);
    expect_scaled(player, out, 0.75F);
    EXPECT_EQ(out.empty(), player.rank() == 0);
  });
}

TEST(MoeCases, A2_RankThatReceivesNothing) {
  auto const batch = case_batch(4, {.experts = 16, .top_k = 2, .hidden = 128, .max_tokens = 8}, {8, 8, 8, 8},
                                {0.25F, 0.75F}, [](int, std::int64_t t) {
                                  return Numbers{t, t + 1};
                                });
  play_case(batch, [](Player const& player, Communicator&) {
    Numbers const global{4, 8, 8, 8, 8, 8, 8, 8, 4, 0, 0, 0, 0, 0, 0, 0};
    auto const first = global.begin() + 4 * player.rank();
    auto routing = player.route();
    EXPECT_EQ(listed(routing.counts().expert_counts), Numbers(first, first + 4));
    if (player.rank() == 3) {
      EXPECT_EQ(routing.rows(Layout::by_expert), 0);
    }
    auto const once = player.dispatch(routing);
    auto const again = player.dispatch(routing);
    auto const bytes = static_cast<std::size_t>(once.rows()) * once.row_bytes();
    EXPECT_TRUE(contents(once.data(), bytes) == contents(again.data(), bytes));
    auto const x = player.rows(0, player.batch().row_bytes());
    Memory const x_there(x);
    for (int i = 0; i < 100; ++i) {
      auto const received = player.group().dispatch(routing, x_there.data());
      Guarded out(x.size());
      player.group().combine(routing, received.data(), out.data());
      expect_bytes(out.read(), x, "repeat " + std::to_string(i));
    }
    expect_scaled(player, exchange(player, routing), 1.0F);
  });
}

TEST(MoeCases, A3_UnequalTokenCountsThreeRanks) {
  auto const batch = case_batch(3, {.experts = 6, .top_k = 2, .hidden = 64, .max_tokens = 8}, {5, 1, 3}, {0.25F, 0.75F},
                                [](int r, std::int64_t t) {
                                  return Numbers{(r + t) % 6, (r + t + 3) % 6};
                                });
  Numbers const expected[] = {{3, 4}, {2, 3}, {4, 2}};
  play_case(batch, [&](Player const& player, Communicator&) {
    auto routing = player.route();
    auto const received = player.dispatch(routing);
    auto const counts = received.counts();
    EXPECT_EQ(listed(counts.expert_counts), expected[player.rank()]);
    EXPECT_EQ(std::accumulate(counts.counts.begin(), counts.counts.end(), std::int64_t{0}), received.rows());
    EXPECT_EQ(std::accumulate(counts.expert_counts.begin(), counts.expert_counts.end(), std::int64_t{0}),
              received.rows());
    expect_scaled(player, exchange(player, routing), 1.0F);
  });
}

TEST(MoeCases, A4_AllTokensToOneExpert) {
  Making making;
  making.limit = std::chrono::seconds(10);
  for (std::int64_t const top_k : {1, 2}) {
    auto const batch =
        case_batch(4, {.experts = 8, .top_k = top_k, .hidden = 128, .max_tokens = 64}, {64, 64, 64, 64},
                   top_k == 1 ? std::vector<float>{1.0F} : std::vector<float>{0.5F, 0.5F}, [&](int, std::int64_t) {
                     return top_k == 1 ? Numbers{7} : Numbers{6, 7};
                   });
    play_case(batch, making, [&](Player const& player, Communicator&) {
      auto routing = player.route();
      auto const busy = top_k == 1 ? Numbers{0, 256} : Numbers{256, 256};
      EXPECT_EQ(listed(routing.counts().expert_counts), player.rank() == 3 ? busy : (Numbers{0, 0}));
      expect_scaled(player, exchange(player, routing), 1.0F);
    });
  }
}

TEST(MoeCases, A7_TinyAndOddBounds) {
  for (std::int64_t const most : {1, 2, 7, 8, 31, 32, 63, 64}) {
    auto const batch = case_batch(4, {.experts = 16, .top_k = 4, .hidden = 64, .max_tokens = most}, Numbers(4, most),
                                  std::vector<float>(4, 0.25F), [](int r, std::int64_t t) {
                                    return Numbers{(t + r) % 16, (t + r + 4) % 16, (t + r + 8) % 16, (t + r + 12) % 16};
                                  });
    play_case(batch, [&](Player const& player, Communicator&) {
      auto routing = player.route();
      EXPECT_EQ(listed(routing.counts().expert_counts), Numbers(4, most));
      for (auto const layout : {Layout::by_expert, Layout::expert_slots, Layout::by_source}) {
        DispatchWish wish;
        wish.layout = layout;
        wish.into = true;  // between guard bytes
        player.dispatch(routing, wish);
      }
      expect_scaled(player, exchange(player, routing), 1.0F);
    });
  }
}

TEST(MoeCases, A8_DroppedChoicesAndNanWeightsUnderThem) {
  auto const nan = std::numeric_limits<float>::quiet_NaN();
  auto batch = case_batch(2, {.experts = 4, .top_k = 3, .hidden = 64, .max_tokens = 3}, {3, 3}, {nan, nan, nan},
                          [](int, std::int64_t t) {
                            return t == 0 ? Numbers{0, -1, 3} : t == 1 ? Numbers{-1, -1, -1} : Numbers{2, -1, -1};
                          });
  for (auto& weights : batch.weights) weights[0] = weights[2] = 0.5F, weights[6] = 1.0F;
  play_case(batch, [](Player const& player, Communicator&) {
    auto routing = player.route();
    auto const received = player.dispatch(routing);
    EXPECT_EQ(listed(received.counts().expert_counts), player.rank() == 0 ? (Numbers{2, 0}) : (Numbers{2, 2}));
    std::vector<std::int32_t> const ids(received.ids().begin(), received.ids().end());
    if (player.rank() == 0) {
      EXPECT_EQ(ids, (std::vector<std::int32_t>{0, -1, -1, 0, -1, -1}));
    } else {
      EXPECT_EQ(ids, (std::vector<std::int32_t>{0, -1, -1, 0, -1, -1, -1, -1, 1, -1, -1, 1}));
    }
    for (auto const weight : received.weights()) EXPECT_FALSE(std::isnan(weight));
    auto const out = exchange(player, routing);
    auto expected = player.rows(0, player.batch().row_bytes());
    std::fill_n(expected.begin() + 128, 128, std::byte{0});  // +0.0, 64 times
    EXPECT_EQ(out, expected);
  });
}

}  // namespace
