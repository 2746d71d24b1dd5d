// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA engine: what every engine does, then what is its own.
#include <chrono>
#include <thread>

#include "davit/error.hpp"
#include "tests/cuda/bench.hpp"
#include "tests/cuda/patterns.hpp"
#include "tests/support/child.hpp"

namespace davit::test {
namespace {

using namespace std::chrono_literals;

INSTANTIATE_TEST_SUITE_P(Cuda, EngineConformance,
                         testing::Values(EngineKind{"streams", [] { return std::make_unique<CudaBench>(); }, false,
                                                    false}),
                         kind_name);

class CudaEngineTest : public testing::Test {
 protected:
  [[nodiscard]] DeviceEngine& engine() { return bench_.engine(); }
  [[nodiscard]] Counter* counter(std::uint32_t value = 0) {
    auto* const made = reinterpret_cast<Counter*>(bench_.shared(64));
    store_release(*made, value);
    return made;
  }
  /// Device memory with a pattern.
  [[nodiscard]] std::byte* filled(std::size_t bytes, std::uint32_t seed) {
    auto* const memory = bench_.buffer(bytes);
    std::vector<std::byte> data(bytes);
    fill(data.data(), bytes, seed);
    bench_.write(memory, data);
    return memory;
  }
  void expect_pattern(std::byte const* memory, std::size_t bytes, std::uint32_t seed) {
    Verdict verdict{};
    check(bench_.read(memory, bytes).data(), bytes, seed, verdict);
    EXPECT_EQ(verdict.bad, 0U) << text_of(verdict);
  }
  /// That the device still does what it is told.
  void expect_alive() {
    auto* const from = filled(4096, 4711);
    auto* const to = bench_.buffer(4096);
    host::RowMove const moves[] = {{0, 0}, {1, 1}};
    engine().submit(Lane::up, MoveRowsOp{to, from, 2048, moves, 2, host::Stores::cached});
    finish(engine());
    expect_pattern(to, 4096, 4711);
  }

  CudaBench bench_;
  Watchdog watchdog_{60s};
};

TEST_F(CudaEngineTest, SubmitsWholeCallsAndFetchesNothing) {
  EXPECT_TRUE(engine().submits_whole_calls());
  EXPECT_FALSE(engine().can_fetch());
  EXPECT_THROW(engine().submit(Lane::down, FetchOp{}), UsageError);
  EXPECT_TRUE(engine().idle());
}

TEST_F(CudaEngineTest, ContiguousBlocksLaunchNoKernel) {
  // What an alltoallv submits.
  std::size_t const bytes = 1 << 20;
  auto* const from = filled(bytes, 1);
  auto* const to = bench_.buffer(bytes);
  auto* const slot = bench_.shared(bytes / 4);
  auto* const data = counter();
  auto* const credit = counter();
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
    auto const offset = chunk * bytes / 4;
    engine().submit(Lane::up, HoldOp{credit, chunk, 0, Awaited::credit});
    engine().submit(Lane::up, CopyOp{slot, from + offset, bytes / 4});
    engine().submit(Lane::up, RaiseOp{data, chunk + 1});
    engine().submit(Lane::down, HoldOp{data, chunk + 1, 0, Awaited::data});
    engine().submit(Lane::down, CopyOp{to + offset, slot, bytes / 4});
    engine().submit(Lane::down, RaiseOp{credit, chunk + 1});
  }
  finish(engine());
  expect_pattern(to, bytes, 1);
  EXPECT_EQ(engine().launches(), 0U);
}

TEST_F(CudaEngineTest, ZeroesSharedMemoryInOrder) {
  auto* const slot = bench_.shared(100000);
  auto* const gate = counter();
  std::memset(slot, 0xFF, 100000);
  engine().submit(Lane::up, HoldOp{gate, 1, 0, Awaited::credit});
  engine().submit(Lane::up, ZeroOp{slot + 3, 99990});
  engine().seal();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(slot[3], std::byte{0xFF}) << "ran before its hold was open";
  store_release(*gate, 1);
  finish(engine());
  EXPECT_TRUE(std::all_of(slot + 3, slot + 99993, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(slot[2], std::byte{0xFF});
  EXPECT_EQ(slot[99993], std::byte{0xFF});
}

TEST_F(CudaEngineTest, ManyCountersInARow) {
  // More than one batch of memory operations; all are set after the copy before them.
  auto* const from = filled(1 << 20, 7);
  auto* const slot = bench_.shared(1 << 20);
  std::vector<Counter*> counters;
  engine().submit(Lane::up, CopyOp{slot, from, 1 << 20});
  for (std::uint32_t i = 0; i < 150; ++i) {
    counters.push_back(counter());
    engine().submit(Lane::up, RaiseOp{counters.back(), i + 1});
  }
  for (auto* const each : counters) engine().submit(Lane::up, HoldOp{each, 1, 0, Awaited::data});
  engine().seal();
  while (load_acquire(*counters.front()) == 0) std::this_thread::yield();
  Verdict verdict{};
  check(slot, 1 << 20, 7, verdict);
  EXPECT_EQ(verdict.bad, 0U) << text_of(verdict);
  finish(engine());
  for (std::uint32_t i = 0; i < 150; ++i) EXPECT_EQ(load_acquire(*counters[i]), i + 1);
}

TEST_F(CudaEngineTest, IndexArraysAreCapturedAtSubmission) {
  auto* const from = filled(64 * 256, 3);
  auto* const to = bench_.buffer(64 * 256);
  auto* const sum = bench_.buffer(1024);
  auto* const gate = counter();
  engine().submit(Lane::down, HoldOp{gate, 1, 0, Awaited::data});
  {
    std::vector<host::RowMove> moves;
    for (std::int64_t row = 0; row < 64; ++row) moves.push_back({row, row});
    std::vector<RowTerm> terms{{0, 5, 1.0F, 1}};
    std::vector<RowBase> bases{{from, 256}};
    std::vector<std::uint32_t> first{0, 1};
    engine().submit(Lane::down, MoveRowsOp{to, from, 256, moves.data(), moves.size(), host::Stores::cached});
    engine().submit(
        Lane::down,
        SumRowsOp{{f32, f32, f32, false, false}, bases.data(), terms.data(), first.data(), 1, 64, sum, 256, nullptr});
    for (auto& move : moves) move = {1 << 20, 1 << 20};
    terms[0] = {7, 1 << 20, 0.0F, 0};
    bases[0] = {nullptr, 1};
    first = {9, 9};
  }
  store_release(*gate, 1);
  finish(engine());
  expect_pattern(to, 64 * 256, 3);
  EXPECT_EQ(engine().launches(), 2U);
}

TEST_F(CudaEngineTest, RowsGoOnWhenTheIndexRingGoesRound) {
  CudaBench small({.index_bytes = 8 * 4096, .patience = 20s});
  std::size_t const rows = 1000;  // 16000 bytes of moves: more than a part of the ring
  std::vector<host::RowMove> moves;
  for (std::size_t row = 0; row < rows; ++row) {
    moves.push_back({static_cast<std::int64_t>(row), static_cast<std::int64_t>(rows - 1 - row)});
  }
  auto* const first = small.buffer(rows * 64);
  auto* const second = small.buffer(rows * 64);
  std::vector<std::byte> data(rows * 64);
  fill(data.data(), data.size(), 11);
  small.write(first, data);
  for (int time = 0; time < 101; ++time) {  // an odd number of reversals
    auto const lane = Lane::up;
    auto* const to = time % 2 == 0 ? second : first;
    auto* const from = time % 2 == 0 ? first : second;
    small.engine().submit(lane, MoveRowsOp{to, from, 64, moves.data(), rows, host::Stores::cached});
  }
  finish(small.engine());
  auto const got = small.read(second, data.size());
  for (std::size_t row = 0; row < rows; ++row) {
    ASSERT_EQ(std::memcmp(got.data() + row * 64, data.data() + (rows - 1 - row) * 64, 64), 0) << "row " << row;
  }
}

TEST_F(CudaEngineTest, FullIndexRingTellsWhomItWaitsFor) {
  CudaBench small({.index_bytes = 8 * 4096, .patience = 300ms});
  auto* const gate = reinterpret_cast<Counter*>(small.shared(64));
  auto* const rows = small.buffer(4096 * 16);
  std::vector<host::RowMove> const moves(200, host::RowMove{0, 1});
  small.engine().submit(Lane::down, HoldOp{gate, 1, 6, Awaited::data});
  auto const submit_many = [&] {
    for (int i = 0; i < 40; ++i) {
      small.engine().submit(Lane::down, MoveRowsOp{rows, rows, 16, moves.data(), 200, host::Stores::cached});
    }
  };
  try {
    submit_many();
    ADD_FAILURE() << "no error";
  } catch (TimeoutError const& error) {
    EXPECT_EQ(error.rank(), 6) << error.what();
  }
  small.engine().abandon();
  EXPECT_TRUE(small.engine().run_out_within(10s));
  EXPECT_TRUE(small.engine().idle());
}

TEST_F(CudaEngineTest, VeryLongRowsGoByCopyEngines) {
  std::size_t const row = (4U << 20) + 16;
  auto* const from = filled(2 * row, 9);
  auto* const to = bench_.buffer(2 * row);
  host::RowMove const moves[] = {{0, 0}, {1, 1}};
  engine().submit(Lane::up, MoveRowsOp{to, from, row, moves, 2, host::Stores::cached});
  finish(engine());
  expect_pattern(to, 2 * row, 9);
  EXPECT_EQ(engine().launches(), 0U);
}

TEST_F(CudaEngineTest, LanesKeepOrderWithAUsersStream) {
  std::size_t const bytes = 1 << 20;
  auto* const buffer = bench_.buffer(bytes);
  auto* const slot = bench_.shared(bytes);
  auto* const back = bench_.buffer(bytes);
  auto* const flag = counter();
  auto* const verdict = reinterpret_cast<Verdict*>(bench_.buffer(sizeof(Verdict)));
  bench_.write(reinterpret_cast<std::byte*>(verdict), std::vector<std::byte>(sizeof(Verdict)));
  for (std::uint32_t round = 1; round <= 20; ++round) {
    spin(bench_.stream(), 200us);
    fill(bench_.stream(), buffer, bytes, round);
    engine().begin_after(bench_.stream());
    engine().submit(Lane::up, CopyOp{slot, buffer, bytes});
    engine().submit(Lane::up, RaiseOp{flag, round});
    engine().submit(Lane::down, HoldOp{flag, round, 0, Awaited::data});
    engine().submit(Lane::down, CopyOp{back, slot, bytes});
    engine().end_before(bench_.stream());
    check(bench_.stream(), back, bytes, round, verdict);
  }
  finish(engine());
  auto const raw = bench_.read(reinterpret_cast<std::byte*>(verdict), sizeof(Verdict));
  Verdict found{};
  std::memcpy(&found, raw.data(), sizeof found);
  EXPECT_EQ(found.checked, 20 * bytes / kUnitBytes);
  EXPECT_EQ(found.bad, 0U) << text_of(found);
}

TEST_F(CudaEngineTest, AbandonLetsTheStreamsRunOut) {
  auto* const gate = counter(41);
  auto* const other = counter(0xFFFF'FFF0);
  auto* const behind = counter();
  engine().submit(Lane::up, HoldOp{gate, 42, 3, Awaited::credit});
  engine().submit(Lane::up, HoldOp{gate, 50, 3, Awaited::credit});
  engine().submit(Lane::up, RaiseOp{behind, 1});
  engine().submit(Lane::down, HoldOp{other, 5, 2, Awaited::data});
  engine().seal();
  std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(engine().blocked(Lane::down));
  EXPECT_EQ(engine().blocked(Lane::down)->peer, 2);
  EXPECT_EQ(engine().blocked(Lane::up)->value, 42U);
  auto const start = std::chrono::steady_clock::now();
  engine().abandon();
  EXPECT_TRUE(engine().run_out_within(10s));
  auto const took = std::chrono::steady_clock::now() - start;
  std::printf("abandon took %lld us\n",
              static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  EXPECT_TRUE(engine().idle());
  EXPECT_FALSE(engine().blocked(Lane::up));
  EXPECT_FALSE(engine().blocked(Lane::down));
  EXPECT_EQ(load_acquire(*gate), 50U);
  EXPECT_EQ(load_acquire(*other), 5U);
  EXPECT_LT(took, 2s);
  expect_alive();
}

TEST_F(CudaEngineTest, AbandonWinsAgainstALiveWriter) {
  auto* const gate = counter();
  engine().submit(Lane::down, HoldOp{gate, 7, 1, Awaited::data});
  engine().submit(Lane::down, HoldOp{gate, 9, 1, Awaited::data});
  engine().seal();
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) {
      store_release(*gate, 3);
      std::this_thread::sleep_for(50us);
    }
  });
  engine().abandon();
  EXPECT_TRUE(engine().run_out_within(10s));
  stop = true;
  writer.join();
  EXPECT_TRUE(engine().idle());
  expect_alive();
}

TEST_F(CudaEngineTest, DestructionDoesNotHang) {
  auto* const gate = counter();
  engine().submit(Lane::up, HoldOp{gate, 1, 1, Awaited::credit});
  engine().seal();
  bench_.drop_engine();
  EXPECT_EQ(load_acquire(*gate), 1U);
}

TEST_F(CudaEngineTest, DeviceErrorsSurface) { run_child("CudaEngineTest.DISABLED_BadAddress"); }

TEST_F(CudaEngineTest, DISABLED_BadAddress) {
  host::RowMove const move{0, 0};
  auto* const nowhere = reinterpret_cast<std::byte*>(0x100000);
  engine().submit(Lane::up, MoveRowsOp{bench_.buffer(16), nowhere, 16, &move, 1, host::Stores::cached});
  engine().seal();
  bool thrown = false;
  for (auto const end = std::chrono::steady_clock::now() + 10s; !thrown && std::chrono::steady_clock::now() < end;) {
    try {
      engine().progress();
      EXPECT_FALSE(engine().idle());
    } catch (SystemError const& error) {
      thrown = std::string(error.what()).find("cudaErrorIllegalAddress") != std::string::npos;
      EXPECT_TRUE(thrown) << error.what();
      break;
    }
  }
  EXPECT_TRUE(thrown);
  engine().abandon();
  EXPECT_TRUE(engine().run_out_within(10s));
  EXPECT_TRUE(engine().idle());
}

}  // namespace
}  // namespace davit::test
