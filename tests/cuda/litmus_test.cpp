// SPDX-License-Identifier: Apache-2.0
/// @file
/// Is the protocol sound on GPUs? Two processes exchange chunks through rings of two slots, in every way that an
/// operation may fill or empty a slot: by copy engine, by kernel, by the CPU. Data change each round; every 16 bytes
/// that arrive are checked by the receiver's GPU, and again by its CPU. Then what happens behind a wait that stays
/// closed. Run also with CUDA_DEVICE_MAX_CONNECTIONS=1 and CUDA_LAUNCH_BLOCKING=1.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/cuda/pair.hpp"
#include "tests/cuda/patterns.hpp"
#include "tests/support/limits.hpp"
#include "transports/cuda/driver.hpp"

namespace davit::test {
namespace {

using namespace std::chrono_literals;

/// Ends the program with 77 where it cannot test anything.
class NeedsTwoSeats : public testing::Environment {
  void SetUp() override {
    auto const why = seat().ranks != 2 ? std::string("litmus takes 2 ranks") : seat().why_not;
    if (why.empty()) {
      if (seat().rank == 0) std::printf("litmus: 2 ranks, %s\n", seat().is_shared ? "one GPU for both" : "a GPU each");
      return;
    }
    if (seat().rank == 0) std::fprintf(stderr, "SKIPPED: %s, nothing was tested\n", why.c_str());
    MPI_Finalize();
    std::exit(77);
  }
};
[[maybe_unused]] testing::Environment* const needs = testing::AddGlobalTestEnvironment(new NeedsTwoSeats);

/// Who fills a slot, and who empties it.
enum class By { copy, kernel, host };
char const* name_of(By by) { return by == By::copy ? "copy" : by == By::kernel ? "kernel" : "host"; }

struct Way {
  By up;
  By down;
};

constexpr std::size_t kChunk = 256 << 10;
constexpr std::size_t kRow = 1024;
constexpr std::uint32_t kKeepEvery = 8;  // rounds whose data the CPU checks too

class Litmus : public testing::TestWithParam<Way> {
 protected:
  Litmus() { barrier(); }
  ~Litmus() override { barrier(); }

  void up(Pair& pair, Way way, std::uint32_t round, std::byte* send) {
    auto const seed = seed_of(round, pair.rank());
    auto const place = pair.place(round);
    if (way.up == By::host) {
      // The slot's last chunk was that of two rounds ago.
      auto const& credit = pair.own().credit(pair.peer()).chunks;
      ASSERT_TRUE(wait_for([&] { return has_reached(load_acquire(credit), pair.after(round) - 1); })) << "no credit";
      fill(pair.own().slot(place), kChunk, seed);
      store_release(pair.own().data(pair.peer()), pair.after(round + 1));
      return;
    }
    fill(user_.get(), send, kChunk, seed);
    pair.engine().begin_after(user_.get());
    auto* const slot = pair.mesh().begin_push(pair.engine(), place);
    submit(pair, Lane::up, way.up, slot, send);
    int const reader = pair.peer();
    pair.mesh().end_push(pair.engine(), place, {&reader, 1}, kChunk);
  }

  void down(Pair& pair, Way way, std::uint32_t round, std::byte* receive, Verdict* verdict) {
    auto const seed = seed_of(round, pair.peer());
    auto const place = pair.place(round);
    if (way.down == By::host) {
      pair.engine().end_before(user_.get());
      auto const& data = pair.peers().data(pair.rank());
      ASSERT_TRUE(wait_for([&] { return has_reached(load_acquire(data), pair.after(round + 1)); })) << "no data";
      check(pair.peers().slot(place), kChunk, seed, by_cpu_);
      store_release(pair.peers().credit(pair.rank()).chunks, pair.after(round + 1));
      return;
    }
    if (way.up == By::host) pair.engine().begin_after(user_.get());
    auto const* const slot = pair.mesh().begin_pull(pair.engine(), pair.peer(), place);
    submit(pair, Lane::down, way.down, receive, slot);
    pair.mesh().end_pull(pair.engine(), pair.peer());
    pair.engine().end_before(user_.get());
    check(user_.get(), receive, kChunk, seed, verdict);
  }

  void submit(Pair& pair, Lane lane, By by, std::byte* to, std::byte const* from) {
    if (by == By::copy) return pair.engine().submit(lane, CopyOp{to, from, kChunk});
    pair.engine().submit(lane, MoveRowsOp{to, from, kRow, all_rows_.data(), all_rows_.size(), host::Stores::cached});
  }

  void run(Way way, std::uint32_t rounds, Mesh::Start start) {
    Pair pair(2, kChunk, start);
    cuda::DeviceGuard const guard(seat().device);
    cuda::DeviceMemory const send(kChunk);
    cuda::DeviceMemory const receive(kChunk);
    cuda::DeviceMemory const verdicts(sizeof(Verdict));
    auto* const verdict = reinterpret_cast<Verdict*>(verdicts.get());
    cuda::PinnedMemory const kept((rounds / kKeepEvery + 1) * kChunk);
    DAVIT_CUDA_CHECK(cudaMemsetAsync(verdict, 0, sizeof(Verdict), user_.get()));
    barrier();
    auto const begin = std::chrono::steady_clock::now();
    for (std::uint32_t round = 0; round < rounds && !HasFatalFailure(); ++round) {
      up(pair, way, round, send.get());
      down(pair, way, round, receive.get(), verdict);
      if (way.down == By::host || round % kKeepEvery != 0) continue;
      DAVIT_CUDA_CHECK(cudaMemcpyAsync(kept.get() + round / kKeepEvery * kChunk, receive.get(), kChunk,
                                       cudaMemcpyDefault, user_.get()));
    }
    pair.engine().end_before(user_.get());
    bool const is_over = wait_for([&] { return pair.engine().progress() || user_.is_done(); });
    auto const took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(is_over) << "not over: " << standing(pair.engine());
    if (!is_over) {
      pair.engine().abandon();
      EXPECT_TRUE(pair.engine().run_out_within(10s));
    }
    Verdict by_gpu{};
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(&by_gpu, verdict, sizeof by_gpu, cudaMemcpyDefault, user_.get()));
    user_.wait();
    for (std::uint32_t round = 0; way.down != By::host && round < rounds; round += kKeepEvery) {
      check(kept.get() + round / kKeepEvery * kChunk, kChunk, seed_of(round, pair.peer()), by_cpu_);
    }
    std::printf("rank %d: up by %s, down by %s, %u rounds: %.1f us a round; GPU: %s; CPU: %s\n", pair.rank(),
                name_of(way.up), name_of(way.down), rounds,
                std::chrono::duration<double, std::micro>(took).count() / rounds, text_of(by_gpu).c_str(),
                text_of(by_cpu_).c_str());
    EXPECT_EQ(by_gpu.bad + by_cpu_.bad, 0U);
    EXPECT_EQ(by_gpu.checked, way.down == By::host ? 0 : rounds * (kChunk / kUnitBytes));
    EXPECT_GT(by_cpu_.checked, 0U);
    barrier();
  }

  Litmus(Litmus const&) = delete;
  Litmus& operator=(Litmus const&) = delete;

  cuda::Stream user_ = [] {
    cuda::DeviceGuard const guard(seat().device);
    return cuda::Stream();
  }();
  std::vector<host::RowMove> const all_rows_ = [] {
    std::vector<host::RowMove> moves;
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(kChunk / kRow); ++row) moves.push_back({row, row});
    return moves;
  }();
  Verdict by_cpu_{};
  Watchdog watchdog_{100s};
};

/// Hundreds of rounds, a few dozen where ranks share a GPU: each hop may wait for a time slice there.
TEST_P(Litmus, DataArriveWholeAndInTime) {
  bool const has_host = GetParam().up == By::host || GetParam().down == By::host;
  run(GetParam(), seat().is_shared ? (has_host ? 16 : 64) : 400, {1, 0});
}

TEST_P(Litmus, CountersWrap) { run(GetParam(), 16, {0xFFFF'FFF9, 0xFFFF'FFF9}); }
TEST_P(Litmus, CountersPassTheSignBit) { run(GetParam(), 16, {0x7FFF'FFF9, 0x7FFF'FFF9}); }

INSTANTIATE_TEST_SUITE_P(Ways, Litmus,
                         testing::Values(Way{By::copy, By::copy}, Way{By::copy, By::kernel}, Way{By::copy, By::host},
                                         Way{By::kernel, By::copy}, Way{By::kernel, By::kernel},
                                         Way{By::kernel, By::host}, Way{By::host, By::copy}, Way{By::host, By::kernel}),
                         [](auto const& way) {
                           return std::string(name_of(way.param.up)) + "_" + name_of(way.param.down);
                         });

/// Behind a wait that stays closed for a while.
class LitmusWaits : public testing::Test {
 protected:
  LitmusWaits() { barrier(); }
  ~LitmusWaits() override { barrier(); }
  LitmusWaits(LitmusWaits const&) = delete;
  LitmusWaits& operator=(LitmusWaits const&) = delete;

  /// That the context still does what it is told.
  void expect_alive(Pair& pair) {
    std::size_t const bytes = 64 << 10;
    cuda::DeviceGuard const guard(seat().device);
    cuda::Stream const stream;
    cuda::DeviceMemory const memory(bytes);
    fill(stream.get(), memory.get(), bytes, 99);
    std::vector<std::byte> got(bytes);
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(got.data(), memory.get(), bytes, cudaMemcpyDefault, stream.get()));
    stream.wait();
    Verdict verdict{};
    check(got.data(), bytes, 99, verdict);
    EXPECT_EQ(verdict.bad, 0U) << text_of(verdict);
    EXPECT_NO_THROW(pair.engine().progress());
  }
  static double milliseconds(std::chrono::steady_clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  }

  Watchdog watchdog_{60s};
};

TEST_F(LitmusWaits, FirstLaunchOfAKernelBehindAClosedWait) {
  Pair pair(2, 4096, {});
  auto const& gate = pair.peers().data(pair.rank());
  {
    cuda::DeviceGuard const guard(seat().device);
    cuda::Stream const user;
    cuda::DeviceMemory const word(sizeof(std::uint32_t));
    DAVIT_CUDA_CHECK(cudaMemsetAsync(word.get(), 0, 4, user.get()));
    std::thread opener([&] {  // each rank opens the other's
      std::this_thread::sleep_for(300ms);
      store_release(pair.own().data(pair.peer()), 1);
    });
    pair.engine().submit(Lane::down, HoldOp{&gate, 1, pair.peer(), Awaited::data});
    pair.engine().end_before(user.get());
    auto const begin = std::chrono::steady_clock::now();
    launch_for_the_first_time(user.get(), reinterpret_cast<std::uint32_t*>(word.get()));
    auto const launched = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(wait_for([&] { return user.is_done(); }));
    auto const ran = std::chrono::steady_clock::now() - begin;
    opener.join();
    std::uint32_t set = 0;
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(&set, word.get(), 4, cudaMemcpyDefault, user.get()));
    user.wait();
    EXPECT_EQ(set, 1U);
    std::printf("rank %d: a kernel's first launch behind a closed wait returned after %.1f ms, ran after %.1f ms%s\n",
                pair.rank(), milliseconds(launched), milliseconds(ran), launches_block() ? " (launches block)" : "");
  }
  barrier();
}

TEST_F(LitmusWaits, AbandonReleasesAWaitThatNobodySatisfies) {
  Pair pair(2, 4096, {});
  cuda::DeviceGuard const guard(seat().device);
  cuda::DeviceMemory const memory(4096);
  pair.engine().submit(Lane::down, HoldOp{&pair.peers().data(pair.rank()), 1000, pair.peer(), Awaited::data});
  pair.engine().submit(Lane::down, CopyOp{memory.get(), pair.peers().slot(0), 4096});
  pair.engine().submit(Lane::up, HoldOp{&pair.own().credit(pair.peer()).chunks, 1000, pair.peer(), Awaited::credit});
  pair.engine().seal();
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(pair.engine().idle());
  EXPECT_TRUE(pair.engine().blocked(Lane::up));
  EXPECT_TRUE(pair.engine().blocked(Lane::down));
  auto const begin = std::chrono::steady_clock::now();
  pair.engine().abandon();
  EXPECT_TRUE(pair.engine().run_out_within(10s));
  std::printf("rank %d: abandon took %.3f ms\n", pair.rank(), milliseconds(std::chrono::steady_clock::now() - begin));
  EXPECT_TRUE(pair.engine().idle());
  expect_alive(pair);
  barrier();
}

/// With blocking launches the submission below does not return before the wait is open.
TEST_F(LitmusWaits, AWatcherReleasesAStuckSubmission) {
  Pair pair(2, 4096, {});
  cuda::DeviceGuard const guard(seat().device);
  cuda::DeviceMemory const memory(4096);
  std::atomic<bool> stop = false;
  std::thread watcher([&] {
    std::this_thread::sleep_for(200ms);
    while (!stop) {
      pair.engine().release_holds();
      std::this_thread::sleep_for(1ms);
    }
  });
  host::RowMove const moves[] = {{0, 1}, {1, 0}};
  auto const begin = std::chrono::steady_clock::now();
  pair.engine().submit(Lane::down, HoldOp{&pair.peers().data(pair.rank()), 1000, pair.peer(), Awaited::data});
  pair.engine().submit(Lane::down,
                       MoveRowsOp{memory.get(), pair.peers().slot(0), 2048, moves, 2, host::Stores::cached});
  auto const submitted = std::chrono::steady_clock::now() - begin;
  pair.engine().seal();
  EXPECT_TRUE(wait_for([&] { return pair.engine().idle(); })) << standing(pair.engine());
  auto const ran = std::chrono::steady_clock::now() - begin;
  stop = true;
  watcher.join();
  std::printf("rank %d: submission took %.1f ms, ran after %.1f ms\n", pair.rank(), milliseconds(submitted),
              milliseconds(ran));
  EXPECT_GT(ran, 100ms);
  expect_alive(pair);
  barrier();
}

}  // namespace
}  // namespace davit::test
