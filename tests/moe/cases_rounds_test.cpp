// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cases of many rounds, where what an earlier round left behind must never show.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/moe/cases.hpp"
#include "tests/support/limits.hpp"

namespace {

using namespace davit;
using namespace davit::test;
using Numbers = std::vector<std::int64_t>;
using std::chrono::milliseconds;

Numbers two_experts(int r, std::int64_t t) { return {(t + r) % 8, (t + r + 3) % 8}; }

TEST(MoeCases, A9_BackToBackChangingSizes) {
  constexpr int rounds = 100;
  std::vector<Batch> batches;
  for (int i = 0; i < rounds; ++i) {
    std::int64_t const sizes[] = {16, 1, 0, 16, 7};
    Numbers tokens;
    for (int r = 0; r < 4; ++r) tokens.push_back(sizes[(i + r) % 5]);
    auto& batch =
        batches.emplace_back(case_batch(4, {.experts = 8, .top_k = 2, .hidden = 256, .max_tokens = 16, .dtype = f32},
                                        tokens, {0.25F, 0.75F}, two_experts));
    batch.x = [i](int r, std::int64_t t, std::int64_t) { return static_cast<float>(1000 * i + 16 * r + t); };
  }
  play_case(batches[0], [&](Player const& first, Communicator&) {
    auto& group = first.group();
    int const rank = first.rank();
    std::vector<std::vector<std::byte>> received(rounds);
    std::vector<Guarded> outs;
    std::vector<std::vector<std::byte>> x;
    for (auto const& batch : batches) {
      Player const player(batch, rank, group);
      x.push_back(player.rows(0, batch.row_bytes()));
      outs.emplace_back(x.back().size());
    }
    for (std::size_t i = 0; i < rounds; ++i) {
      auto const me = static_cast<std::size_t>(rank);
      auto routing = group.route(std::span<std::int64_t const>(batches[i].ids[me]), batches[i].weights[me]);
      DispatchOptions where;
      where.space = is_on_device() ? Space::device : Space::host;  // a rank without tokens has an x that does not say
      auto const rows = group.dispatch(routing, Memory(x[i]).data(), where);
      group.combine(routing, rows.data(), outs[i].data());
      received[i] = contents(rows.data(), static_cast<std::size_t>(rows.rows()) * rows.row_bytes());
    }
    for (std::size_t i = 0; i < rounds; ++i) {
      EXPECT_TRUE(outs[i].intact());
      expect_bytes(outs[i].read(), x[i], "round " + std::to_string(i));
      auto const expected = Player(batches[i], rank, group).expert_rows(Layout::by_expert, 1);  // identity: as received
      expect_bytes(received[i], expected, "rows of round " + std::to_string(i));
    }
  });
}

/// Elements of the last 64 bytes of each row are `scale * i + 256 * r + t` of round i.
void expect_round(std::byte const* rows, std::size_t row_bytes, std::vector<ReferenceRow> const& places, int round) {
  auto const actual = contents(rows, places.size() * row_bytes);
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < places.size(); ++row) {
    auto const value = static_cast<float>(4096 * round + 256 * places[row].source + places[row].token);
    for (std::size_t at = row_bytes - 64; at < row_bytes; at += sizeof(float)) {
      float element;
      std::memcpy(&element, actual.data() + row * row_bytes + at, sizeof element);
      wrong += element != value ? 1U : 0U;
    }
  }
  EXPECT_EQ(wrong, 0U) << "round " << round << ": that many elements are of another round or row";
}

void play_late_ranks(std::int64_t tokens) {
  Batch batch = chosen_batch(4, {.experts = 8, .top_k = 2, .hidden = 1024, .max_tokens = tokens, .dtype = f32},
                             Numbers(4, tokens), {0.25F, 0.75F}, two_experts);
  Making making;
  making.options.timeout = stretched(milliseconds(2000));
  play_case(batch, making, [&](Player const& player, Communicator&) {
    auto const row_bytes = batch.row_bytes();
    auto const received_places = reference_dispatch(batch, player.rank(), Layout::by_expert, 1).rows;
    std::vector<ReferenceRow> own_places;
    for (std::int64_t t = 0; t < tokens; ++t) own_places.push_back({player.rank(), t, -1});
    auto routing = player.route();
    std::vector<float> x(static_cast<std::size_t>(tokens * 1024));
    for (int round = 0; round < 50; ++round) {
      for (std::size_t row = 0; row < x.size(); row += 1024) {  // the ends, which are looked at
        auto const value = static_cast<float>(4096 * round + 256 * player.rank()) + static_cast<float>(row / 1024);
        std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(row + 1024 - 32), 32, value);
      }
      if (round % 10 == 0 && round / 10 == player.rank() && round > 0) std::this_thread::sleep_for(milliseconds(200));
      auto const received = player.group().dispatch(routing, Memory(bytes_of(x)).data());
      expect_round(received.data(), row_bytes, received_places, round);
      if (player.rank() == 3 && (round == 15 || round == 25)) std::this_thread::sleep_for(milliseconds(200));
      Guarded out(x.size() * sizeof(float));
      player.group().combine(routing, received.data(), out.data());
      EXPECT_TRUE(out.intact());
      expect_round(out.data(), row_bytes, own_places, round);
    }
  });
}

TEST(MoeCases, A10_LateRankWithUnchangedRouting) { play_late_ranks(16); }
TEST(MoeCases, A10_LateRankWithUnchangedRoutingOfLongBatches) { play_late_ranks(256); }

}  // namespace
