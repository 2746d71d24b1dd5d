// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where received rows live: the group's own memory, an allocator, the caller's; and rows that span many slots.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "tests/moe/player.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

constexpr int kRanks = 4;

Batch batch_with(ExpertGroupOptions const& options, std::uint64_t stream) {
  Random random(stream);
  return random_batch(random, kRanks, options);
}

ExpertGroupOptions small() { return {.experts = 10, .top_k = 3, .hidden = 24, .max_tokens = 12}; }

TEST(MoeReceive, RowsThatLiveAreNeverWrittenOver) {
  auto const batch = batch_with(small(), 51);
  auto other = batch;
  other.salt = ~batch.salt;
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    Player const second(other, rank, group);  // other rows, the same choices
    auto routing = player.route();
    std::vector<Received> kept;
    for (int i = 0; i < 12; ++i) {  // more than a group would keep for itself
      kept.push_back(player.dispatch(routing, {.payloads = {5}}));
      second.dispatch(routing);
    }
    for (auto const& received : kept) player.check(received, {.payloads = {5}});
    kept.erase(kept.begin(), kept.begin() + 6);
    second.dispatch(routing, {.layout = Layout::expert_slots});
    for (auto const& received : kept) player.check(received, {.payloads = {5}});
  });
}

TEST(MoeReceive, ReceivedMoves) {
  auto const batch = batch_with(small(), 52);
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    auto received = player.dispatch(routing);
    auto* const data = received.data();
    Received moved = std::move(received);
    EXPECT_EQ(moved.data(), data);
    player.check(moved);
    moved = player.dispatch(routing, {.layout = Layout::by_source});
    player.check(moved, {.layout = Layout::by_source});
    EXPECT_THROW(static_cast<void>(moved.payload(0)), UsageError);
  });
  Received const nothing;
  EXPECT_EQ(nothing.rows(), 0);
  EXPECT_TRUE(nothing.ids().empty());
  EXPECT_TRUE(nothing.weights().empty());
  EXPECT_TRUE(nothing.counts().counts.empty());
}

/// Knows each piece it has given out.
struct Bookkeeper {
  std::mutex mutex;
  std::map<void*, Memory> pieces;  ///< where the rank keeps its buffers
  int given = 0;
  bool refuses = false;

  Allocator allocator() {
    return {[this](std::size_t bytes) -> void* {
              std::lock_guard const lock(mutex);
              if (refuses) return nullptr;
              Memory piece(bytes);
              ++given;
              return pieces.emplace(piece.data(), piece).first->first;
            },
            [this](void* data, std::size_t bytes) {
              std::lock_guard const lock(mutex);
              EXPECT_EQ(pieces.at(data).size(), bytes);
              pieces.erase(data);
            }};
  }
};

TEST(MoeReceive, AnAllocatorGivesAndTakesBack) {
  auto const batch = batch_with(small(), 53);
  std::vector<Bookkeeper> books(kRanks);
  std::vector<Received> kept(kRanks);
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    auto& book = books[static_cast<std::size_t>(rank)];
    auto options = batch.options;
    if (rank != 3) (is_on_device() ? options.device_allocator : options.allocator) = book.allocator();  // may differ
    ExpertGroup group(comm, options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    for (int i = 0; i < 5; ++i) {
      auto const received = player.dispatch(routing, {.payloads = {3, 70}});
      if (rank == 3) continue;
      EXPECT_EQ(book.pieces.size(), 1U);
      auto const& [data, piece] = *book.pieces.begin();
      auto const* const first = static_cast<std::byte*>(data);
      EXPECT_GE(received.data(), first);
      EXPECT_LE(received.payload(1) + received.rows() * 70, first + piece.size());
    }
    EXPECT_EQ(book.given, rank == 3 ? 0 : 5);
    EXPECT_TRUE(book.pieces.empty());
    kept[static_cast<std::size_t>(rank)] = player.dispatch(routing);
    player.dispatch(routing, {.into = true});
    EXPECT_EQ(book.given, rank == 3 ? 0 : 6);  // the caller's memory asks nobody
  });
  kept.clear();  // after the group
  for (auto const& book : books) EXPECT_TRUE(book.pieces.empty());
}

TEST(MoeReceive, AnAllocatorThatHasNothingIsARefusal) {
  auto const batch = batch_with(small(), 54);
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    Bookkeeper book;
    auto options = batch.options;
    options.allocator = book.allocator();
    ExpertGroup group(comm, options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    auto const x = player.rows(0, batch.row_bytes());
    book.refuses = rank == 2;
    auto const dispatch = [&] { static_cast<void>(group.dispatch(routing, x.data())); };
    if (rank == 2) {
      EXPECT_THROW(dispatch(), std::bad_alloc);
    } else {
      expect_parts(raised<PeerError>(dispatch), {"rank 2 refused"});
    }
    book.refuses = false;
    player.dispatch(routing);
  });
}

TEST(MoeReceive, AlignmentAndIdsConcernOneRankAlone) {
  auto const batch = batch_with(small(), 55);
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    player.dispatch(routing, {.alignment = 1 + 7 * rank, .global_ids = rank % 2 == 0, .into = rank == 3});
    CombineWish wish;
    wish.sum.out = batch.options.dtype;
    wish.told = false;
    wish.alignment = 1 + 7 * rank;
    player.combine(routing, wish);
  });
}

/// Rows far longer than a slot: cut over chunks in dispatch, by columns in combine.
TEST(MoeReceive, LongRowsSpanManySlots) {
  for (auto const order : {HostOrder::eager, HostOrder::queues}) {
    constexpr int ranks = 8;
    auto const batch = [] {
      Random random(56);
      return random_batch(random, ranks,
                          {.experts = 20,
                           .top_k = 4,
                           .hidden = 7168,
                           .max_tokens = 3,
                           .dtype = f32,
                           .partial_dtype = bf16,
                           .reduce_group = 3});
    }();
    Making making;
    making.options.slot_bytes = 4096;
    making.options.slots = 2;
    making.options.host_order = order;
    run_ranks(ranks, making, [&](int rank, Communicator& comm) {
      ExpertGroup group(comm, batch.options);
      Player const player(batch, rank, group);
      auto routing = player.route();
      player.dispatch(routing, {.payloads = {4095, 1, 9000}, .into = true});
      CombineWish wish;
      wish.sum.bias = true;
      player.combine(routing, wish);
      wish.sum.reduce = Reduce::by_k;
      wish.sum.out = f16;
      player.combine(routing, wish);
    });
  }
}

TEST(MoeReceive, SlotsTooSmallForOneElementOfEachAreRefused) {
  constexpr int ranks = 8;
  auto const batch =
      chosen_batch(ranks, {.experts = 8 * 160, .top_k = 160, .hidden = 4, .max_tokens = 1, .dtype = f32},
                   std::vector<std::int64_t>(ranks, 1), std::vector<float>(160, 1.0F), [](int rank, std::int64_t) {
                     std::vector<std::int64_t> ids;
                     for (std::int64_t k = 0; k < 160; ++k) ids.push_back((7 * k + rank) % 1280);
                     return ids;
                   });
  Making making;
  making.options.slot_bytes = 4096;
  run_ranks(ranks, making, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    Player const player(batch, rank, group);
    auto routing = player.route();
    auto const received = player.dispatch(routing);
    Guarded const out(4 * sizeof(float));
    auto const text =
        raised<UsageError>([&] { group.combine(routing, received.data(), out.data(), {.reduce = Reduce::by_k}); });
    expect_parts(text, {"slot_bytes is 4096", "must be at least 4480"});
    player.combine(routing);
  });
}

}  // namespace
