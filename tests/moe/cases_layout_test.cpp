// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cases that ask for exact results: padded layouts, the same bits every time, a sweep of shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "tests/moe/cases.hpp"

namespace {

using namespace davit;
using namespace davit::test;
using Numbers = std::vector<std::int64_t>;

TEST(MoeCases, A11_PaddedExpertMajorOutput) {
  Numbers const chosen[] = {{0, 0, 0, 1, 2}, {0, 1, 2, 2, 2}};
  auto const batch = case_batch(2, {.experts = 4, .top_k = 1, .hidden = 64, .max_tokens = 5}, {5, 5}, {1.0F},
                                [&](int r, std::int64_t t) { return Numbers{chosen[r][static_cast<std::size_t>(t)]}; });
  play_case(batch, [](Player const& player, Communicator&) {
    auto routing = player.route();
    DispatchWish wish;
    wish.alignment = 8;
    auto const received = player.dispatch(routing, wish);  // pad rows are zero
    bool const first = player.rank() == 0;
    EXPECT_EQ(listed(received.counts().expert_counts), first ? (Numbers{4, 2}) : (Numbers{4, 0}));
    EXPECT_EQ(listed(received.counts().padded_counts), first ? (Numbers{8, 8}) : (Numbers{8, 0}));
    EXPECT_EQ(received.rows(), first ? 16 : 8);
    auto const row = received.row_bytes();
    auto rows = contents(received.data(), static_cast<std::size_t>(received.rows()) * row);
    std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>(4 * row), 4 * row, kUntouched);  // NaN
    if (first) std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>(10 * row), 6 * row, kUntouched);
    Memory const spoilt(rows);
    for (auto const* data : {received.data(), spoilt.data()}) {
      Guarded out(5 * row);
      player.group().combine(routing, data, out.data());
      EXPECT_TRUE(out.intact());
      expect_scaled(player, out.read(), 1.0F);
    }
    exchange(player, routing, wish);
  });
}

/// x normal, weights a softmax of normals, experts distinct.
Batch bits_batch(int reduce_group) {
  constexpr std::int64_t tokens = 32, top_k = 8, hidden = 512;
  Batch batch{4, {.experts = 32, .top_k = top_k, .hidden = hidden, .max_tokens = tokens, .reduce_group = reduce_group}};
  std::vector<std::vector<float>> x;
  for (int rank = 0; rank < 4; ++rank) {
    std::mt19937 engine(1234U + static_cast<unsigned>(rank));
    std::normal_distribution<float> normal;
    auto& of_rank = x.emplace_back();
    for (std::int64_t i = 0; i < tokens * hidden; ++i) of_rank.push_back(normal(engine));
    auto& ids = batch.ids.emplace_back();
    auto& weights = batch.weights.emplace_back();
    Numbers experts(32);
    std::iota(experts.begin(), experts.end(), 0);
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::shuffle(experts.begin(), experts.end(), engine);
      ids.insert(ids.end(), experts.begin(), experts.begin() + top_k);
      std::vector<float> logits;
      for (std::int64_t k = 0; k < top_k; ++k) logits.push_back(std::exp(normal(engine)));
      auto const sum = std::accumulate(logits.begin(), logits.end(), 0.0F);
      for (auto const logit : logits) weights.push_back(logit / sum);
    }
  }
  batch.x = [x](int source, std::int64_t token, std::int64_t column) {
    return x[static_cast<std::size_t>(source)][static_cast<std::size_t>(token * hidden + column)];
  };
  batch.identity = true;
  return batch;
}

class MoeBits : public testing::TestWithParam<int> {};

TEST_P(MoeBits, A12_SameBitsEveryTime) {
  play_case(bits_batch(GetParam()), [](Player const& player, Communicator&) {
    auto routing = player.route();
    auto const received = player.dispatch(routing);
    for (auto const reduce : {Reduce::by_k, Reduce::grouped}) {
      for (auto const out_dtype : {bf16, f32}) {
        Sum sum;
        sum.reduce = reduce;
        sum.out = out_dtype;
        auto const expected = reference_combine(player.batch(), player.rank(), sum);
        CombineOptions options;
        options.reduce = reduce;
        options.out_dtype = out_dtype;
        for (int i = 0; i < 20; ++i) {
          if (i % 4 == player.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          Guarded out(expected.size());
          player.group().combine(routing, received.data(), out.data(), options);
          expect_bytes(out.read(), expected, "run " + std::to_string(i));
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(ReduceGroup, MoeBits, testing::Values(1, 2, 4));

struct Shape {
  int ranks;
  std::int64_t experts;
  std::int64_t top_k;
  std::int64_t hidden;
};

void play_shape(Shape const& shape) {
  auto const batch =
      case_batch(shape.ranks, {.experts = shape.experts, .top_k = shape.top_k, .hidden = shape.hidden, .max_tokens = 9},
                 Numbers(static_cast<std::size_t>(shape.ranks), 9),
                 std::vector<float>(static_cast<std::size_t>(shape.top_k), 1.0F / static_cast<float>(shape.top_k)),
                 [&](int r, std::int64_t t) {
                   Numbers ids;
                   for (std::int64_t k = 0; k < shape.top_k; ++k) ids.push_back((t + r + 7 * k) % shape.experts);
                   return ids;
                 });
  play_case(batch, [&](Player const& player, Communicator&) {
    auto narrow = player.route(false);
    auto wide = player.route(true);
    auto const out = exchange(player, narrow);
    EXPECT_EQ(out, exchange(player, wide));
    bool const exact = (shape.top_k & (shape.top_k - 1)) == 0;  // so is 1/K, and partial sums round back
    if (exact) expect_scaled(player, out, 1.0F);
  });
}

TEST(MoeCases, A14_ShapeSweep) {
  for (std::int64_t const top_k : {1, 9, 16, 22}) play_shape({2, 64, top_k, 64});
  for (std::int64_t const hidden : {8, 72, 136, 1024, 3584, 7}) play_shape({2, 64, 4, hidden});
  play_shape({1, 4, 2, 64});
  play_shape({3, 10, 4, 64});
}

TEST(MoeCases, A14_TenExpertsOnThreeRanks) {
  run_ranks(3, [](int rank, Communicator& comm) {
    ExpertGroup const group(comm, {.experts = 10, .top_k = 4, .hidden = 64, .max_tokens = 9});
    EXPECT_EQ(group.local_experts(), rank == 0 ? 4 : 3);
    EXPECT_EQ(group.first_expert(), rank == 0 ? 0 : 1 + 3 * rank);
    int const owners[] = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2};
    for (int expert = 0; expert < 10; ++expert) EXPECT_EQ(group.owner_of(expert), owners[expert]);
  });
}

}  // namespace
