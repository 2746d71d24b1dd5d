// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums whose order and roundings show, against numbers worked out by hand: no reference but these.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "tests/moe/batch.hpp"
#include "tests/support/ranks.hpp"
#include "transports/host/kernels.hpp"

namespace {

using namespace davit;
using namespace davit::test;

/// One token on rank 0 of R ranks with one expert each, chosen by `ids`; the expert of rank r answers `values[r]`.
struct Sum {
  std::vector<float> values;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  Dtype dtype = f32;
  std::optional<Dtype> partial{};
  int reduce_group = 0;  ///< 0: all
  Reduce reduce = Reduce::grouped;
  Weighting weighting = Weighting::at_combine;
  Layout layout = Layout::by_expert;
  std::optional<float> bias{};
  std::int64_t experts_a_rank = 1;

  /// Bits of the result, as f32 of `out`.
  [[nodiscard]] float of(Dtype out_dtype = f32) const {
    auto const ranks = static_cast<int>(values.size() / static_cast<std::size_t>(experts_a_rank));
    float result = NAN;
    run_ranks(ranks, [&](int rank, Communicator& comm) {
      ExpertGroup group(comm, {.experts = static_cast<std::int64_t>(values.size()),
                               .top_k = static_cast<std::int64_t>(ids.size()),
                               .hidden = 1,
                               .max_tokens = 1,
                               .dtype = dtype,
                               .partial_dtype = partial,
                               .reduce_group = reduce_group == 0 ? ranks : reduce_group});
      std::vector<std::int64_t> const none;
      auto routing = rank == 0 ? group.route(std::span(ids), weights) : group.route(std::span(none), {});
      auto const counts = routing.counts(layout);
      std::vector<std::byte> rows(static_cast<std::size_t>(routing.rows(layout)) * size_of(dtype));
      std::size_t row = 0;
      for (std::size_t expert = 0; expert < counts.expert_counts.size(); ++expert) {
        if (counts.expert_counts[expert] == 0) continue;
        auto const value = values[static_cast<std::size_t>(group.first_expert()) + expert];
        host::store_element(dtype, value, rows.data() + size_of(dtype) * row++);
      }
      std::byte out[4];
      std::byte bias_element[4];
      host::store_element(out_dtype, bias.value_or(0.0F), bias_element);
      CombineOptions options{.layout = layout, .weighting = weighting, .reduce = reduce, .out_dtype = out_dtype};
      if (bias) options.bias = bias_element;
      group.combine(routing, rows.data(), rank == 0 ? out : nullptr, options);
      if (rank == 0) result = host::load_element(out_dtype, out);
    });
    return result;
  }
};

constexpr float kBig = 16777216.0F;  // 2^24: one more is lost in f32

TEST(MoeReduction, ByKFollowsK) {
  Sum sum{.values = {kBig, 1.0F, -kBig}, .ids = {0, 1, 2}, .weights = {1.0F, 1.0F, 1.0F}, .reduce = Reduce::by_k};
  EXPECT_EQ(sum.of(), 0.0F);
  sum.ids = {0, 2, 1};
  EXPECT_EQ(sum.of(), 1.0F);
  sum.ids = {2, 1, 0};
  EXPECT_EQ(sum.of(), 1.0F);  // -2^24 + 1 has a neighbour
  sum.ids = {1, 0, 2};
  EXPECT_EQ(sum.of(), 0.0F);
}

TEST(MoeReduction, GroupedFollowsTheRanksWhateverKSays) {
  Sum sum{.values = {kBig, 1.0F, -kBig}, .ids = {0, 2, 1}, .weights = {1.0F, 1.0F, 1.0F}};
  EXPECT_EQ(sum.of(), 0.0F);
  sum.values = {kBig, -kBig, 1.0F};
  EXPECT_EQ(sum.of(), 1.0F);
}

TEST(MoeReduction, GroupsAreSummedApart) {
  Sum sum{.values = {kBig, 1.0F, 1.0F, -kBig}, .ids = {3, 2, 1, 0}, .weights = std::vector<float>(4, 1.0F)};
  EXPECT_EQ(sum.of(), 0.0F);  // ((2^24 + 1) + 1) - 2^24
  sum.reduce_group = 2;
  EXPECT_EQ(sum.of(), 1.0F);  // (2^24 + 1) + (1 - 2^24)
  sum.reduce_group = 3;
  EXPECT_EQ(sum.of(), 0.0F);  // ((2^24 + 1) + 1) + (-2^24)
  sum.values = {1.0F, kBig, -kBig, 1.0F};
  EXPECT_EQ(sum.of(), 1.0F);  // (1 + 2^24) - 2^24, then + 1
  sum.reduce_group = 2;
  EXPECT_EQ(sum.of(), 1.0F);  // (1 + 2^24) + (-2^24 + 1): 2^24 + -16777215
}

TEST(MoeReduction, ARankAddsItsOwnExpertsByK) {
  Sum sum{.values = {kBig, 1.0F, -kBig, 2.0F, 4.0F, 0.0F},
          .ids = {0, 1, 2},
          .weights = {1.0F, 1.0F, 1.0F},
          .experts_a_rank = 3};
  EXPECT_EQ(sum.of(), 0.0F);
  sum.ids = {2, 0, 1};
  EXPECT_EQ(sum.of(), 1.0F);
  sum.ids = {1, 2, 0};
  EXPECT_EQ(sum.of(), 1.0F);
}

TEST(MoeReduction, PartialsAreRoundedBetween) {
  Sum sum{.values = {1.0F, 0.00390625F}, .ids = {0, 0, 1}, .weights = {1.0F, 0.00390625F, 1.0F}};
  EXPECT_EQ(sum.of(), 1.0078125F);  // f32: nothing is lost
  sum.partial = bf16;               // 1 + 2^-8 is a tie in bf16 and becomes 1; 1 + 2^-8 again, now of f32 to f32
  EXPECT_EQ(sum.of(), 1.0F);        // step (2) rounds 1 + 2^-8 to bf16 as well
  sum.reduce_group = 1;
  EXPECT_EQ(sum.of(), 1.00390625F);  // the groups are added in f32
  sum.partial = f16;
  EXPECT_EQ(sum.of(), 1.0078125F);
  EXPECT_EQ(sum.of(bf16), 1.0078125F);
  sum.reduce = Reduce::by_k;
  sum.partial = bf16;  // not looked at
  EXPECT_EQ(sum.of(), 1.0078125F);
}

TEST(MoeReduction, OwnRowsAreRoundedToo) {
  Sum sum{.values = {1.00390625F}, .ids = {0}, .weights = {1.0F}, .partial = bf16};  // one rank: nothing crosses a link
  EXPECT_EQ(sum.of(), 1.0F);
  sum.reduce = Reduce::by_k;
  EXPECT_EQ(sum.of(), 1.00390625F);
}

TEST(MoeReduction, ProductAndSumRoundApart) {
  float const a = 1.0F + 0x1p-12F;  // its square needs one bit more than f32 has
  float const square = a * a;
  EXPECT_NE(std::fma(a, a, -square), 0.0F);
  for (auto const reduce : {Reduce::grouped, Reduce::by_k}) {
    Sum const sum{.values = {-square, a}, .ids = {0, 1}, .weights = {1.0F, a}, .reduce = reduce, .experts_a_rank = 2};
    EXPECT_EQ(sum.of(), 0.0F);
  }
}

TEST(MoeReduction, TheSameExpertTwiceIsOneTerm) {
  Sum sum{.values = {1.0F, -kBig}, .ids = {0, 1, 0}, .weights = {kBig, 1.0F, 1.0F}, .reduce = Reduce::by_k};
  EXPECT_EQ(sum.of(), 0.0F);  // 2^24 + 1 merges to 2^24; apart they would give 1
  sum.weights = {1.0F, 1.0F, 2.0F};
  EXPECT_EQ(sum.of(), 3.0F - kBig);
}

TEST(MoeReduction, ZerosKeepTheirSigns) {
  for (auto const reduce : {Reduce::grouped, Reduce::by_k}) {
    Sum sum{.values = {-0.0F}, .ids = {0}, .weights = {1.0F}, .reduce = reduce};
    EXPECT_TRUE(std::signbit(sum.of()));  // the first term starts the sum
    sum.bias = -0.0F;
    EXPECT_TRUE(std::signbit(sum.of()));
    sum.ids = {-1};
    sum.weights = {NAN};
    EXPECT_EQ(std::bit_cast<std::uint32_t>(sum.of()), 0U);  // +0.0 + -0.0
    sum.bias.reset();
    EXPECT_EQ(std::bit_cast<std::uint32_t>(sum.of()), 0U);
    sum.bias = 2.5F;
    EXPECT_EQ(sum.of(), 2.5F);
  }
}

TEST(MoeReduction, BiasComesLastAndIsOfTheOutputsType) {
  Sum sum{.values = {kBig, 1.0F, -kBig}, .ids = {0, 1, 2}, .weights = {1.0F, 1.0F, 1.0F}, .bias = 1.0F};
  EXPECT_EQ(sum.of(), 1.0F);
  sum.values = {kBig, 0.0F, 0.0F};
  EXPECT_EQ(sum.of(), kBig);
  sum.values = {1.0F, 0.0F, 0.0F};
  sum.bias = 0.00390625F;         // a tie in bf16
  EXPECT_EQ(sum.of(bf16), 1.0F);  // rounded once, after the bias
  EXPECT_EQ(sum.of(f16), 1.00390625F);
}

TEST(MoeReduction, ByCallerOnlyAdds) {
  for (auto const layout : {Layout::by_expert, Layout::expert_slots, Layout::by_source}) {
    Sum const sum{.values = {2.0F, 3.0F},
                  .ids = {1, 0},
                  .weights = {10.0F, 100.0F},
                  .weighting = Weighting::by_caller,
                  .layout = layout};
    EXPECT_EQ(sum.of(), 5.0F);
  }
}

}  // namespace
