// SPDX-License-Identifier: Apache-2.0
/// @file
/// Outboxes and meshes: layout, cards, places, counters that stay right over refusals and mismatches, failures.
#include "transports/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/transports/meshes.hpp"
#include "transports/host/host_engine.hpp"

namespace davit::test {
namespace {

constexpr std::uint32_t kHalf = 0x8000'0000;

TEST(Outbox, PartsDoNotOverlapAndFillTheFormula) {
  for (std::uint32_t const ranks : {1U, 2U, 3U, 8U, 64U}) {
    Geometry const geometry{ranks, 6, 4096};
    EXPECT_EQ(geometry.control_bytes(), (4096 + ranks * (128 + 64 * 64) + 64 * 256 + 4095) / 4096 * 4096);
    EXPECT_EQ(geometry.slots_bytes(), 6U * (4096 + 4096));
    std::vector<std::byte> memory(geometry.control_bytes() + geometry.slots_bytes() + 4096);
    auto* const base = memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096) % 4096;
    Outbox const outbox(Mapping(base, [](std::byte*) {}), geometry);
    // Each part marks its bytes, and none may be marked twice.
    std::vector<int> marks(geometry.control_bytes() + geometry.slots_bytes());
    auto const mark = [&](void const* at, std::size_t bytes) {
      auto const offset = static_cast<std::size_t>(static_cast<std::byte const*>(at) - base);
      ASSERT_LE(offset + bytes, marks.size());
      for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(++marks[offset + i], 1) << "offset " << offset + i;
    };
    mark(&outbox.header(), sizeof(OutboxHeader));
    for (int peer = 0; peer < static_cast<int>(ranks); ++peer) {
      mark(&outbox.data(peer), 64);
      mark(&outbox.credit(peer), 64);
      for (std::uint32_t number = 0; number < kCardRing; ++number) mark(&outbox.card(peer, number), sizeof(Card));
    }
    for (std::uint32_t number = 0; number < kCardRing; ++number) mark(outbox.reason(number), kReasonBytes);
    for (std::uint32_t slot = 0; slot < geometry.slots; ++slot) mark(outbox.slot(slot), geometry.slot_bytes);
  }
}

TEST(Outbox, NoCallSeemsToBeThereAtFirst) {
  for (std::uint32_t const first :
       {0U, 1U, 2U, 63U, 64U, 65U, kHalf - 1, kHalf, kHalf + 1, 0xffff'ffffU, 0xffff'ffc0U}) {
    Meshes meshes({2, 2, 64}, {first, 0});
    for (std::uint32_t number = first; number != first + 200; ++number) {
      ASSERT_EQ(meshes[0].card(1, number), nullptr) << "first " << first << ", number " << number;
    }
  }
}

TEST(Outbox, StatesFollowTheOwner) {
  Mesh mesh(NodeMap(0, 1), {1, 2, 64}, "/dev/shm", {});
  Outbox const outbox(mesh.segment().mapping(), mesh.geometry());
  EXPECT_EQ(outbox.state(), OutboxState::created);
  EXPECT_FALSE(mesh.prepared());
  int binds = 0;
  auto const bind = [&](std::byte* slots, std::size_t bytes, std::uint32_t site) {
    EXPECT_EQ(site, 0U);
    ++binds;
    EXPECT_EQ(slots, outbox.slot(0));
    EXPECT_EQ(bytes, mesh.geometry().slots_bytes());
  };
  mesh.prepare(bind);
  mesh.prepare(bind);
  EXPECT_EQ(binds, 1);
  EXPECT_TRUE(mesh.prepared());
  EXPECT_EQ(outbox.state(), OutboxState::prepared);
  mesh.set_failed(3, 17, "why");
  EXPECT_EQ(outbox.state(), OutboxState::failed);
  EXPECT_EQ(outbox.header().culprit, 3);
  EXPECT_EQ(outbox.header().number, 17U);
  mesh.set_closed();
  EXPECT_EQ(outbox.state(), OutboxState::failed) << "closing must not hide a failure";
}

/// Call numbers and chunk counters that start here.
class MeshFrom : public testing::TestWithParam<std::uint32_t> {
 protected:
  [[nodiscard]] static Mesh::Start start() { return {GetParam(), GetParam() + 7}; }
};
INSTANTIATE_TEST_SUITE_P(Starts, MeshFrom,
                         testing::Values(1U, kHalf - 20, kHalf - 1, 0xffff'ffffU - 30, 0xffff'ffffU, 0U));

TEST_P(MeshFrom, CardsArriveAsWritten) {
  Meshes meshes({3, 2, 64}, start());
  auto const number = start().number;
  Card card{};
  card.operation = Operation::dispatch;
  card.flags = kCardReads;
  card.sent = 11;
  card.expected = 12;
  card.address = 13;
  card.detail = 14;
  card.chunks = 15;
  card.note = 16;
  meshes[0].post(2, number, card);
  EXPECT_EQ(meshes[1].card(0, number), nullptr) << "it is for rank 2";
  EXPECT_EQ(meshes[2].card(1, number), nullptr) << "it is from rank 0";
  EXPECT_EQ(meshes[2].card(0, number + 1), nullptr);
  EXPECT_EQ(meshes[2].card(0, number + kCardRing), nullptr) << "the same place in the ring";
  auto const* const got = meshes[2].card(0, number);
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->number, number);
  EXPECT_EQ(got->operation, Operation::dispatch);
  EXPECT_EQ(got->flags, kCardReads);
  EXPECT_EQ(got->sent, 11U);
  EXPECT_EQ(got->expected, 12U);
  EXPECT_EQ(got->address, 13U);
  EXPECT_EQ(got->detail, 14U);
  EXPECT_EQ(got->chunks, 15U);
  EXPECT_EQ(got->note, 16U);
  EXPECT_EQ(got->base, start().chunk);
}

TEST_P(MeshFrom, RingOfCardsIsFullAt64) {
  Meshes meshes({2, 2, 64}, start());
  auto number = start().number;
  for (std::uint32_t i = 0; i < kCardRing; ++i, ++number) {
    ASSERT_TRUE(meshes[0].can_post(1, number)) << "card " << i;
    meshes[0].post(1, number, {});
  }
  EXPECT_FALSE(meshes[0].can_post(1, number));
  // Reading alone does not free it, and a peer's reading frees only its own ring.
  EXPECT_NE(meshes[1].card(0, start().number), nullptr);
  EXPECT_FALSE(meshes[0].can_post(1, number));
  meshes[1].done_with_card(0, start().number);
  EXPECT_TRUE(meshes[0].can_post(1, number));
  EXPECT_FALSE(meshes[0].can_post(1, number + 1));
  meshes[1].done_with_card(0, start().number + 9);
  EXPECT_TRUE(meshes[0].can_post(1, number + 9));
  EXPECT_FALSE(meshes[0].can_post(1, number + 10));
}

TEST_P(MeshFrom, EachCardIsReadOnceOverManyTurnsOfTheRing) {
  Meshes meshes({2, 2, 64}, start());
  auto number = start().number;
  for (std::uint64_t i = 0; i < 300; ++i, ++number) {
    Card card{};
    card.sent = i;
    ASSERT_TRUE(meshes[0].can_post(1, number));
    ASSERT_EQ(meshes[1].card(0, number), nullptr);
    meshes[0].post(1, number, card);
    auto const* const got = meshes[1].card(0, number);
    ASSERT_NE(got, nullptr);
    ASSERT_EQ(got->sent, i);
    meshes[1].done_with_card(0, number);
  }
}

TEST_P(MeshFrom, PlacesAreEqualAtBothEnds) {
  for (std::uint32_t const ranks : {2U, 3U, 8U}) {
    for (std::uint32_t const slots : {2U, 8U, 14U}) {
      Meshes meshes({ranks, slots, 64}, start());
      auto number = start().number;
      for (int call = 0; call < 50; ++call, ++number) {
        for (int step = 1; step < static_cast<int>(ranks); ++step) {
          std::set<std::uint32_t> seen;
          for (std::uint64_t chunk = 0; chunk < slots; ++chunk) {
            auto const place = meshes[0].place(number, step, chunk);
            ASSERT_LT(place, slots);
            for (int rank = 1; rank < static_cast<int>(ranks); ++rank) {
              ASSERT_EQ(meshes[rank].place(number, step, chunk), place);
            }
            ASSERT_TRUE(seen.insert(place).second) << "two chunks of a step share a slot though others are free";
          }
        }
      }
    }
  }
}

TEST_P(MeshFrom, ReasonsAreKeptByNumberAndCut) {
  Meshes meshes({2, 2, 64}, start());
  auto const number = start().number;
  meshes[0].set_reason(number, "first");
  meshes[0].set_reason(number + 1, std::string(1000, 'x'));
  meshes[0].set_reason(number + 2, "");
  EXPECT_EQ(meshes[1].reason(0, number), "first");
  EXPECT_EQ(meshes[1].reason(0, number + 1), std::string(kReasonBytes - 1, 'x'));
  EXPECT_EQ(meshes[1].reason(0, number + 2), "");
  meshes[0].set_reason(number + kCardRing, "later");
  EXPECT_EQ(meshes[1].reason(0, number), "later");
}

/// Two ranks that exchange one chunk a time by hand.
class MeshCounters : public MeshFrom {
 protected:
  void push(std::uint32_t place, int value) {
    auto* const slot = meshes_[0].begin_push(up_, place);
    up_.submit(Lane::up, CopyOp{slot, keep(value), 1});
    int const reader = 1;
    meshes_[0].end_push(up_, place, {&reader, 1}, std::size_t{1});
  }
  void pull(std::uint32_t place, std::byte* to) {
    auto const* const slot = meshes_[1].begin_pull(down_, 0, place);
    down_.submit(Lane::down, CopyOp{to, slot, 1});
    meshes_[1].end_pull(down_, 0);
  }
  std::byte const* keep(int value) {
    kept_.push_back(std::make_unique<std::byte>(static_cast<std::byte>(value)));
    return kept_.back().get();
  }
  Card const* exchange_card(std::uint32_t number, Card const& card = {}) {
    meshes_[0].post(1, number, card);
    return meshes_[1].card(0, number);
  }

  Meshes meshes_{{2, 2, 64}, start()};
  host::HostEngine up_{HostOrder::eager, {}};
  host::HostEngine down_{HostOrder::eager, {}};
  std::vector<std::unique_ptr<std::byte>> kept_;
};
INSTANTIATE_TEST_SUITE_P(Starts, MeshCounters, testing::Values(1U, kHalf - 9, 0xffff'ffffU - 9));

TEST_P(MeshCounters, ASlotWaitsForTheCreditOfItsLastChunk) {
  for (int round = 0; round < 50; ++round) {
    auto const place = static_cast<std::uint32_t>(round % 2);
    push(place, round);
    ASSERT_TRUE(up_.idle());
    push(place, round + 100);  // the same slot: not before the first was read
    ASSERT_FALSE(up_.idle());
    EXPECT_EQ(up_.blocked(Lane::up)->peer, 1);
    EXPECT_EQ(up_.blocked(Lane::up)->awaited, Awaited::credit);
    std::byte got{};
    pull(place, &got);
    EXPECT_EQ(got, static_cast<std::byte>(round));
    EXPECT_TRUE(up_.progress());
    pull(place, &got);
    EXPECT_EQ(got, static_cast<std::byte>(round + 100));
    ASSERT_TRUE(up_.idle() && down_.idle());
  }
}

TEST_P(MeshCounters, RefusedCallIsForgivenAndTheNextIsRight) {
  auto number = start().number;
  for (int round = 0; round < 10; ++round) {
    // Rank 1 refuses; rank 0 has pushed three chunks into two slots before it knew.
    meshes_[0].post(1, number, {});
    for (std::uint32_t chunk = 0; chunk < 3; ++chunk) push(chunk % 2, 1);
    ASSERT_FALSE(up_.idle());
    meshes_[0].forgive(1);
    EXPECT_TRUE(up_.progress());
    ASSERT_TRUE(up_.idle());
    meshes_[1].done_with_card(0, number);
    // The next call: its card makes rank 1's counters right again.
    ++number;
    ASSERT_NE(exchange_card(number), nullptr);
    std::byte got{};
    push(0, 42 + round);
    ASSERT_TRUE(up_.idle()) << "the slot is not free";
    pull(0, &got);
    EXPECT_EQ(got, static_cast<std::byte>(42 + round));
    ASSERT_TRUE(down_.idle());
    meshes_[1].done_with_card(0, number);
    ++number;
  }
}

TEST_P(MeshCounters, MismatchIsDroppedAndTheNextIsRight) {
  auto number = start().number;
  for (int round = 0; round < 10; ++round) {
    Card card{};
    card.chunks = 5;
    auto const* const seen = exchange_card(number, card);
    ASSERT_NE(seen, nullptr);
    meshes_[1].drop(0, *seen);
    push(0, 1);
    push(1, 2);
    meshes_[0].count_push(up_, 1, 3);
    ASSERT_TRUE(up_.idle());
    meshes_[1].done_with_card(0, number);
    ++number;
    ASSERT_NE(exchange_card(number), nullptr);
    std::byte got{};
    push(1, round);
    pull(1, &got);
    EXPECT_EQ(got, static_cast<std::byte>(round));
    ASSERT_TRUE(up_.idle() && down_.idle());
    meshes_[1].done_with_card(0, number);
    ++number;
  }
}

TEST_P(MeshCounters, HoldForCreditWaitsForAllThatWasPushed) {
  push(0, 1);
  meshes_[0].count_push(up_, 1, 1);
  meshes_[0].hold_for_credit(up_, 1);
  EXPECT_FALSE(up_.idle());
  std::byte got{};
  pull(0, &got);
  up_.progress();
  EXPECT_FALSE(up_.idle());
  static_cast<void>(meshes_[1].begin_pull(down_, 0, 0));
  meshes_[1].end_pull(down_, 0);
  up_.progress();
  EXPECT_TRUE(up_.idle());
}

TEST(Mesh, TroubleNamesWhoAndWhy) {
  Meshes meshes({3, 2, 64}, {});
  EXPECT_FALSE(meshes[0].trouble(1, 1, true));
  meshes[1].set_closed();
  auto trouble = meshes[0].trouble(1, 1, true);
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->culprit, 1);
  EXPECT_NE(trouble->text.find("rank 1 has destroyed its communicator"), std::string::npos) << trouble->text;
  meshes[2].set_failed(1, 5, std::string(1000, 'y'));
  trouble = meshes[0].trouble(2, 1, false);
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->culprit, 1) << "where it began";
  EXPECT_NE(trouble->text.find("rank 2 has failed: " + std::string(kReasonBytes - 1, 'y')), std::string::npos);
  meshes[1].set_failed(-1, 6, "none to blame");
  EXPECT_EQ(meshes[0].trouble(1, 1, false)->culprit, 1);
}

}  // namespace
}  // namespace davit::test
