// SPDX-License-Identifier: Apache-2.0
/// @file
/// All interleavings of two ranks with two slots, each lane one operation at a time, with copies that land as late as
/// they may: none gets stuck before the end, and in all the data are right. Exchanges with a mistake in them show that
/// the search would find one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>

#include "tests/support/limits.hpp"
#include "tests/transports/meshes.hpp"
#include "transports/host/host_engine.hpp"

namespace davit::test {
namespace {

using host::HostEngine;

enum class Mistake { none, no_hold, raise_before_copy, credit_before_copy, pushes_first };

/// What is exchanged: calls in a row, each with a number of chunks from rank 0 and from rank 1.
struct Plan {
  HostOrder order = HostOrder::queues;
  std::vector<std::array<std::uint32_t, 2>> calls;
  Mesh::Start start{};
  Mistake mistake = Mistake::none;
};

/// Both ranks, with all operations submitted and none run.
class World {
 public:
  explicit World(Plan const& plan)
      : plan_(plan),
        meshes_({2, 2, kChunk}, plan.start),
        engines_{HostEngine(plan.order, {}), HostEngine(plan.order, {})} {
    for (int rank = 0; rank < 2; ++rank) {
      auto number = plan_.start.number;
      for (auto const& call : plan_.calls) submit(rank, number++, call);
    }
  }

  /// All that changes: what the engines have left, and all memory that operations write.
  struct State {
    std::array<HostEngine, 2> engines;
    std::vector<std::byte> memory;
  };
  [[nodiscard]] State save() { return {engines_, memory()}; }
  void restore(State const& state) {
    engines_ = state.engines;
    std::size_t at = 0;
    for (auto const& part : parts()) {
      std::memcpy(part.data(), state.memory.data() + at, part.size());
      at += part.size();
    }
  }
  bool step(int rank, Lane lane) { return engines_[static_cast<std::size_t>(rank)].step(lane); }
  [[nodiscard]] bool is_over() const { return engines_[0].idle() && engines_[1].idle(); }
  [[nodiscard]] bool is_right() const { return received_[0] == sent_[1] && received_[1] == sent_[0]; }
  [[nodiscard]] std::vector<std::byte> memory() {
    std::vector<std::byte> all;
    for (auto const& part : parts()) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

 private:
  static constexpr std::uint64_t kChunk = 4;

  [[nodiscard]] std::vector<std::span<std::byte>> parts() {
    std::vector<std::span<std::byte>> parts;
    auto const add = [&parts](void* at, std::size_t bytes) { parts.emplace_back(static_cast<std::byte*>(at), bytes); };
    for (int rank = 0; rank < 2; ++rank) {
      auto const outbox = meshes_.outbox(rank);
      add(&outbox.data(1 - rank), sizeof(Counter));
      add(&outbox.credit(1 - rank).chunks, sizeof(Counter));
      for (std::uint32_t slot = 0; slot < 2; ++slot) add(outbox.slot(slot), kChunk);
      for (auto& chunk : received_[static_cast<std::size_t>(rank)]) add(chunk.data(), chunk.size());
    }
    return parts;
  }

  void push(int rank, std::uint32_t place, std::array<std::byte, kChunk> const& from) {
    auto& mesh = meshes_[rank];
    auto& engine = engines_[static_cast<std::size_t>(rank)];
    int const reader = 1 - rank;
    auto* const to =
        plan_.mistake == Mistake::no_hold ? meshes_.outbox(rank).slot(place) : mesh.begin_push(engine, place);
    if (plan_.mistake == Mistake::raise_before_copy) mesh.end_push(engine, place, {&reader, 1}, kChunk);
    engine.submit(Lane::up, CopyOp{to, from.data(), kChunk});
    if (plan_.mistake != Mistake::raise_before_copy) mesh.end_push(engine, place, {&reader, 1}, kChunk);
  }

  void pull(int rank, std::uint32_t place, std::array<std::byte, kChunk>& to) {
    auto& mesh = meshes_[rank];
    auto& engine = engines_[static_cast<std::size_t>(rank)];
    auto const* const from = mesh.begin_pull(engine, 1 - rank, place);
    if (plan_.mistake == Mistake::credit_before_copy) mesh.end_pull(engine, 1 - rank);
    engine.submit(Lane::down, CopyOp{to.data(), from, kChunk});
    if (plan_.mistake != Mistake::credit_before_copy) mesh.end_pull(engine, 1 - rank);
  }

  /// The order of a strict exchange: push and pull in turn.
  void submit(int rank, std::uint32_t number, std::array<std::uint32_t, 2> const& chunks) {
    auto const me = static_cast<std::size_t>(rank);
    auto const pushes = chunks[me];
    auto const pulls = chunks[1 - me];
    auto const push_next = [&](std::uint32_t chunk) {
      auto const value = static_cast<std::byte>(1 + 100 * me + sent_[me].size());
      sent_[me].push_back({value, value, value, value});
      push(rank, meshes_[rank].place(number, 1, chunk), sent_[me].back());
    };
    if (plan_.mistake == Mistake::pushes_first) {
      for (std::uint32_t chunk = 0; chunk < pushes; ++chunk) push_next(chunk);
    }
    for (std::uint32_t chunk = 0; chunk < std::max(pushes, pulls); ++chunk) {
      if (plan_.mistake != Mistake::pushes_first && chunk < pushes) push_next(chunk);
      if (chunk < pulls) {
        received_[me].push_back({});
        pull(rank, meshes_[rank].place(number, 1, chunk), received_[me].back());
      }
    }
  }

  Plan plan_;
  Meshes meshes_;
  std::array<HostEngine, 2> engines_;
  std::array<std::deque<std::array<std::byte, kChunk>>, 2> sent_;  // deques: operations point into them
  std::array<std::deque<std::array<std::byte, kChunk>>, 2> received_;
};

struct Findings {
  std::size_t states = 0;
  std::size_t ends = 0;
  std::size_t stuck = 0;
  std::size_t damaged = 0;
};

/// Visits every state once. Two are the same if all lanes stand at the same operation and all memory is equal.
Findings explore(Plan const& plan) {
  World world(plan);
  using Position = std::array<std::uint8_t, 4>;
  std::set<std::pair<Position, std::vector<std::byte>>> seen;
  struct Open {
    Position position;
    World::State state;
  };
  std::vector<Open> open;
  open.push_back({{}, world.save()});
  seen.insert({{}, world.memory()});
  Findings found;
  while (!open.empty()) {
    auto const here = std::move(open.back());
    open.pop_back();
    ++found.states;
    bool moved = false;
    for (int move = 0; move < (plan.order == HostOrder::submission ? 2 : 4); ++move) {
      world.restore(here.state);
      bool const one_queue = plan.order == HostOrder::submission;
      if (!world.step(one_queue ? move : move / 2, one_queue || move % 2 == 0 ? Lane::up : Lane::down)) continue;
      moved = true;
      auto position = here.position;
      ++position[static_cast<std::size_t>(move)];
      if (seen.emplace(position, world.memory()).second) open.push_back({position, world.save()});
    }
    if (moved) continue;
    world.restore(here.state);
    if (world.is_over()) {
      ++found.ends;
      found.damaged += world.is_right() ? 0U : 1U;
    } else {
      ++found.stuck;
    }
  }
  return found;
}

constexpr std::uint32_t kHalf = 0x8000'0000;

class Interleavings : public testing::TestWithParam<HostOrder> {
 protected:
  void expect_right(Plan plan, std::size_t least_states) {
    plan.order = GetParam();
    auto const found = explore(plan);
    EXPECT_EQ(found.stuck, 0U);
    EXPECT_EQ(found.damaged, 0U);
    EXPECT_EQ(found.ends, 1U) << "all interleavings must come to the same end";
    EXPECT_GE(found.states, GetParam() == HostOrder::queues ? least_states : least_states / 20);
    RecordProperty("states", static_cast<int>(found.states));
  }
  Watchdog watchdog_{std::chrono::seconds(60)};
};
INSTANTIATE_TEST_SUITE_P(Orders, Interleavings, testing::Values(HostOrder::queues, HostOrder::submission),
                         [](auto const& order) { return order.param == HostOrder::queues ? "queues" : "submission"; });

TEST_P(Interleavings, ThreeChunksEachWay) { expect_right({.calls = {{3, 3}}}, 400); }

TEST_P(Interleavings, UnequalChunks) {
  for (std::array<std::uint32_t, 2> const chunks : {std::array{3U, 1U}, std::array{0U, 4U}, std::array{5U, 2U}}) {
    expect_right({.calls = {chunks}}, 40);
  }
}

TEST_P(Interleavings, CallsInARow) { expect_right({.calls = {{2, 2}, {1, 3}, {3, 1}}}, 400); }

TEST_P(Interleavings, NumbersWrap) {
  expect_right({.calls = {{3, 3}}, .start = {kHalf - 1, kHalf - 2}}, 400);
  expect_right({.calls = {{3, 3}}, .start = {0xffff'ffff, 0xffff'fffe}}, 400);
  expect_right({.calls = {{2, 2}, {2, 2}}, .start = {0xffff'ffff, 0xffff'ffff}}, 400);
}

TEST_P(Interleavings, MistakesAreFound) {
  // Where both push as much, in turn and in one queue, the peer's chunk comes to mean a credit: so unequal ones.
  Plan plan{.order = GetParam(), .calls = {{4, 1}}};
  for (auto const mistake : {Mistake::no_hold, Mistake::raise_before_copy, Mistake::credit_before_copy}) {
    plan.mistake = mistake;
    auto const found = explore(plan);
    EXPECT_GT(found.damaged, 0U) << "mistake " << static_cast<int>(mistake);
  }
}

TEST(InterleavingsInOneQueue, AllPushesFirstGetsStuck) {
  EXPECT_GT(explore({.order = HostOrder::submission, .calls = {{3, 3}}, .mistake = Mistake::pushes_first}).stuck, 0U);
  // With a queue a lane it is as good as in turn: the lanes are what makes it so.
  EXPECT_EQ(explore({.order = HostOrder::queues, .calls = {{3, 3}}, .mistake = Mistake::pushes_first}).stuck, 0U);
}

}  // namespace
}  // namespace davit::test
