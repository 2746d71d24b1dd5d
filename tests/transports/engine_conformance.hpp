// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every engine must do, whatever runs its operations. An engine joins by an EngineKind:
///
///     INSTANTIATE_TEST_SUITE_P(Host, EngineConformance, testing::Values(...), kind_name);
///
/// Include in one file a program.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/limits.hpp"
#include "tests/support/random.hpp"
#include "transports/engine.hpp"

namespace davit::test {

/// An engine, and memory that it can reach.
class EngineBench {
 public:
  virtual ~EngineBench() = default;
  [[nodiscard]] virtual Engine& engine() = 0;
  /// Memory as users give it: on the engine's device. Lives as long as the bench.
  [[nodiscard]] virtual std::byte* buffer(std::size_t bytes) = 0;
  /// Memory as slots and counters have it: the host reads and writes it too.
  [[nodiscard]] virtual std::byte* shared(std::size_t bytes) = 0;
  virtual void write(std::byte* buffer, std::vector<std::byte> const& data) = 0;
  [[nodiscard]] virtual std::vector<std::byte> read(std::byte const* buffer, std::size_t bytes) = 0;
};

struct EngineKind {
  std::string name;
  std::function<std::unique_ptr<EngineBench>()> make;
  bool has_one_queue = false;  ///< both lanes are one queue in the order of submission
  bool drops = true;           ///< abandon() drops what has not run; else it lets it run, on data that nobody looks at
};

inline std::string kind_name(testing::TestParamInfo<EngineKind> const& info) { return info.param.name; }

class EngineConformance : public testing::TestWithParam<EngineKind> {
 protected:
  [[nodiscard]] Counter* counter(std::uint32_t value = 0) {
    auto* const made = reinterpret_cast<Counter*>(bench_->shared(64));
    store_release(*made, value);
    return made;
  }
  [[nodiscard]] std::vector<std::byte> random_bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random_.word());
    return bytes;
  }
  [[nodiscard]] std::byte* filled(std::vector<std::byte> const& data) {
    auto* const buffer = bench_->buffer(std::max<std::size_t>(data.size(), 1));
    bench_->write(buffer, data);
    return buffer;
  }
  template <class T>
  [[nodiscard]] T const* list(std::vector<T> const& entries) {
    auto* const copy = bench_->shared(std::max<std::size_t>(entries.size() * sizeof(T), 1));
    if (!entries.empty()) std::memcpy(copy, entries.data(), entries.size() * sizeof(T));
    return reinterpret_cast<T const*>(copy);
  }
  /// Gets on until all has run, or until nothing has moved for a while.
  void settle() {
    engine().seal();
    auto still_since = std::chrono::steady_clock::now();
    while (!engine().idle() && std::chrono::steady_clock::now() - still_since < std::chrono::milliseconds(50)) {
      if (engine().progress()) still_since = std::chrono::steady_clock::now();
    }
  }
  [[nodiscard]] Engine& engine() { return bench_->engine(); }

  std::unique_ptr<EngineBench> bench_ = GetParam().make();
  Random random_;
  Watchdog watchdog_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineConformance);

TEST_P(EngineConformance, NewEngineIsIdle) {
  EXPECT_TRUE(engine().idle());
  EXPECT_FALSE(engine().progress());
  EXPECT_FALSE(engine().blocked(Lane::up));
  EXPECT_FALSE(engine().blocked(Lane::down));
}

TEST_P(EngineConformance, CopiesBothWays) {
  for (std::size_t const bytes : {1UL, 7UL, 64UL, 4096UL, 100001UL}) {
    auto const data = random_bytes(bytes);
    auto* const from = filled(data);
    auto* const slot = bench_->shared(bytes);
    auto* const to = filled(std::vector<std::byte>(bytes + 2, std::byte{0xFF}));
    auto* const flag = counter();
    engine().submit(Lane::up, CopyOp{slot, from, bytes});
    engine().submit(Lane::up, RaiseOp{flag, 1});
    engine().submit(Lane::down, HoldOp{flag, 1, 0, Awaited::data});
    engine().submit(Lane::down, CopyOp{to + 1, slot, bytes});
    settle();
    ASSERT_TRUE(engine().idle());
    auto const got = bench_->read(to, bytes + 2);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), got.begin() + 1));
    EXPECT_EQ(got.front(), std::byte{0xFF});
    EXPECT_EQ(got.back(), std::byte{0xFF});
  }
}

TEST_P(EngineConformance, EmptyCopyIsFine) {
  engine().submit(Lane::up, CopyOp{nullptr, nullptr, 0});
  settle();
  EXPECT_TRUE(engine().idle());
}

TEST_P(EngineConformance, RaiseComesAfterEarlierCopies) {
  auto const data = random_bytes(50000);
  auto* const from = filled(data);
  auto* const slot = bench_->shared(data.size());
  auto* const flag = counter();
  std::memset(slot, 0, data.size());
  engine().submit(Lane::up, CopyOp{slot, from, data.size()});
  engine().submit(Lane::up, RaiseOp{flag, 1});
  settle();
  ASSERT_EQ(load_acquire(*flag), 1U);
  EXPECT_EQ(std::memcmp(slot, data.data(), data.size()), 0);
}

TEST_P(EngineConformance, HoldKeepsLaterOperationsOfItsLane) {
  auto* const gate = counter(41);
  auto* const behind = counter();
  auto const data = random_bytes(100);
  auto* const from = filled(data);
  auto* const slot = bench_->shared(data.size());
  std::memset(slot, 0, data.size());
  engine().submit(Lane::up, HoldOp{gate, 42, 3, Awaited::credit});
  engine().submit(Lane::up, CopyOp{slot, from, data.size()});
  engine().submit(Lane::up, RaiseOp{behind, 7});
  settle();
  EXPECT_FALSE(engine().idle());
  EXPECT_EQ(load_acquire(*behind), 0U);
  EXPECT_NE(std::memcmp(slot, data.data(), data.size()), 0);
  auto const blocked = engine().blocked(Lane::up);
  ASSERT_TRUE(blocked);
  EXPECT_EQ(blocked->peer, 3);
  EXPECT_EQ(blocked->awaited, Awaited::credit);
  EXPECT_EQ(blocked->value, 42U);
  EXPECT_EQ(blocked->actual, 41U);
  store_release(*gate, 42);
  settle();
  EXPECT_TRUE(engine().idle());
  EXPECT_EQ(load_acquire(*behind), 7U);
  EXPECT_EQ(std::memcmp(slot, data.data(), data.size()), 0);
  EXPECT_FALSE(engine().blocked(Lane::up));
}

TEST_P(EngineConformance, HoldTakesWhatIsAheadAndWraps) {
  struct Case {
    std::uint32_t awaited, there;
    bool open;
  };
  for (auto const [awaited, there, open] :
       {Case{5, 5, true}, Case{5, 9, true}, Case{5, 4, false}, Case{0x8000'0001, 0x7fff'ffff, false},
        Case{0x8000'0001, 0x8000'0003, true}, Case{1, 0xffff'ffff, false}, Case{0xffff'fffe, 1, true}}) {
    auto* const gate = counter(there);
    auto* const behind = counter();
    engine().submit(Lane::down, HoldOp{gate, awaited, 0, Awaited::data});
    engine().submit(Lane::down, RaiseOp{behind, 1});
    settle();
    EXPECT_EQ(load_acquire(*behind), open ? 1U : 0U) << "awaited " << awaited << ", there " << there;
    store_release(*gate, awaited);
    settle();
    ASSERT_TRUE(engine().idle());
  }
}

TEST_P(EngineConformance, OperationsOfALaneRunInOrder) {
  // Each copy reads what the last one wrote, and the flag ends at the last value.
  std::size_t const bytes = 256;
  auto const data = random_bytes(bytes);
  auto* const from = filled(data);
  auto* const flag = counter();
  std::vector<std::byte*> chain{from};
  for (int i = 0; i < 20; ++i) {
    chain.push_back(filled(std::vector<std::byte>(bytes)));
    engine().submit(Lane::up, CopyOp{chain.back(), chain[chain.size() - 2], bytes});
    engine().submit(Lane::up, RaiseOp{flag, static_cast<std::uint32_t>(i + 1)});
  }
  settle();
  EXPECT_EQ(bench_->read(chain.back(), bytes), data);
  EXPECT_EQ(load_acquire(*flag), 20U);
}

TEST_P(EngineConformance, LanesAreIndependent) {
  auto* const gate = counter();
  auto* const up = counter();
  auto* const down = counter();
  engine().submit(Lane::up, HoldOp{gate, 1, 0, Awaited::credit});
  engine().submit(Lane::up, RaiseOp{up, 1});
  engine().submit(Lane::down, RaiseOp{down, 1});
  settle();
  EXPECT_EQ(load_acquire(*up), 0U);
  EXPECT_EQ(load_acquire(*down), GetParam().has_one_queue ? 0U : 1U);
  store_release(*gate, 1);
  settle();
  EXPECT_TRUE(engine().idle());
  EXPECT_EQ(load_acquire(*up), 1U);
  EXPECT_EQ(load_acquire(*down), 1U);
}

TEST_P(EngineConformance, LanesMeetAtCounters) {
  // Down waits for up, up waits for down: what two ranks do, here in one.
  std::size_t const bytes = 1000;
  auto* const data = counter();
  auto* const credit = counter();
  auto* const slot = bench_->shared(bytes);
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::byte*> received;
  for (std::uint32_t round = 1; round <= 10; ++round) {
    sent.push_back(random_bytes(bytes));
    received.push_back(filled(std::vector<std::byte>(bytes)));
    engine().submit(Lane::up, HoldOp{credit, round - 1, 0, Awaited::credit});
    engine().submit(Lane::up, CopyOp{slot, filled(sent.back()), bytes});
    engine().submit(Lane::up, RaiseOp{data, round});
    engine().submit(Lane::down, HoldOp{data, round, 0, Awaited::data});
    engine().submit(Lane::down, CopyOp{received.back(), slot, bytes});
    engine().submit(Lane::down, RaiseOp{credit, round});
  }
  settle();
  ASSERT_TRUE(engine().idle());
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(bench_->read(received[i], bytes), sent[i]) << "round " << i;
}

TEST_P(EngineConformance, MovesRows) {
  for (auto const stores : {host::Stores::cached, host::Stores::streaming}) {
    for (std::size_t const row : {1UL, 16UL, 100UL, 4096UL}) {
      std::size_t const rows = 40;
      auto const data = random_bytes(row * rows);
      auto* const from = filled(data);
      auto* const to = filled(std::vector<std::byte>(row * rows, std::byte{0xFF}));
      std::vector<host::RowMove> moves;
      std::vector<std::byte> expected(row * rows, std::byte{0xFF});
      for (std::size_t i = 0; i < rows; i += 2) {
        moves.push_back({static_cast<std::int64_t>(i), static_cast<std::int64_t>((i * 7 + 3) % rows)});
        std::memcpy(expected.data() + (i * 7 + 3) % rows * row, data.data() + i * row, row);
      }
      engine().submit(Lane::down, MoveRowsOp{to, from, row, list(moves), moves.size(), stores});
      engine().submit(Lane::down, RaiseOp{counter(), 1});
      settle();
      ASSERT_TRUE(engine().idle());
      EXPECT_EQ(bench_->read(to, row * rows), expected) << row << " bytes a row";
    }
  }
}

TEST_P(EngineConformance, SumsRowsInOrder) {
  // 2^24 + 1 - 2^24 is 0 in this order, and 1 in another. Row 1 has no term, row 2 has a bias to add.
  std::vector<float> const values{16777216.0F, 2.0F, 1.0F, 3.0F, -16777216.0F, 5.0F};
  std::vector<std::byte> raw(sizeof(float) * values.size());
  std::memcpy(raw.data(), values.data(), raw.size());
  std::vector<RowBase> const bases{{filled(raw), 2 * sizeof(float)}};
  std::vector<RowTerm> const terms{{0, 0, 9.0F, 0}, {0, 1, 9.0F, 0}, {0, 2, 9.0F, 1}, {0, 1, 9.0F, 1}};
  std::vector<std::uint32_t> const first{0, 3, 3, 4};
  auto* const out = filled(std::vector<std::byte>(3 * 2 * sizeof(float), std::byte{0xFF}));
  host::RowSum const types{f32, f32, f32, false, false};
  engine().submit(Lane::down,
                  SumRowsOp{types, list(bases), list(terms), list(first), 3, 2, out, 2 * sizeof(float), nullptr});
  settle();
  ASSERT_TRUE(engine().idle());
  std::vector<float> sums(6);
  auto const got = bench_->read(out, sums.size() * sizeof(float));
  std::memcpy(sums.data(), got.data(), got.size());
  EXPECT_EQ(sums, (std::vector<float>{0.0F, 10.0F, 0.0F, 0.0F, 1.0F, 3.0F}));
}

TEST_P(EngineConformance, ZeroesBytes) {
  auto const data = random_bytes(1002);
  auto* const to = filled(data);
  engine().submit(Lane::down, ZeroOp{to + 1, 1000});
  settle();
  ASSERT_TRUE(engine().idle());
  auto const got = bench_->read(to, data.size());
  EXPECT_TRUE(std::all_of(got.begin() + 1, got.end() - 1, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(got.front(), data.front());
  EXPECT_EQ(got.back(), data.back());
}

TEST_P(EngineConformance, AbandonEndsWhatHasNotRun) {
  auto* const gate = counter();
  auto* const behind = counter();
  engine().submit(Lane::up, HoldOp{gate, 1, 0, Awaited::credit});
  engine().submit(Lane::up, RaiseOp{behind, 1});
  settle();
  ASSERT_FALSE(engine().idle());
  engine().abandon();
  settle();  // some drop at once, others must let their queues run out
  EXPECT_TRUE(engine().idle());
  EXPECT_FALSE(engine().blocked(Lane::up));
  store_release(*gate, 1);
  settle();
  EXPECT_EQ(load_acquire(*behind), GetParam().drops ? 0U : 1U);
  // And it goes on with what comes next.
  engine().submit(Lane::up, RaiseOp{behind, 2});
  settle();
  EXPECT_EQ(load_acquire(*behind), 2U);
}

}  // namespace davit::test
