// SPDX-License-Identifier: Apache-2.0
/// @file
/// Words between two processes, on two GPUs or one that they share: many rounds of new data, each word checked by the
/// receiver's GPU, the host in no round. On a shared GPU every round waits for time slices, so there are few.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <thread>

#include "tests/cuda/patterns.hpp"
#include "tests/cuda/words_regions.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/random.hpp"
#include "transports/cuda/words_probe.hpp"

namespace davit::test {
namespace {

using cuda::WordsForm;
using cuda::WordsPlan;

constexpr std::size_t kRegion = std::size_t{8} << 20U;
constexpr std::uint32_t kLargest = std::uint32_t{4} << 20U;  // message
constexpr std::chrono::seconds kLimit{150};

struct Kind {
  WordsForm form;
  WordsPlan plan;
  unsigned warps;
  std::uint32_t bytes;
  std::uint32_t bank;  ///< bytes
  std::uint32_t rounds;
};

class WordsPairs : public testing::Test {
 protected:
  void SetUp() override {
    if (!seat().why_not.empty()) GTEST_SKIP() << seat().why_not;
    if (seat().ranks != 2) GTEST_SKIP() << "two ranks are needed";
    regions_ = std::make_unique<WordsRegions>(kRegion);
    send_ = std::make_unique<cuda::DeviceMemory>(kLargest);
    receive_ = std::make_unique<cuda::DeviceMemory>(kLargest);
    verdict_ = std::make_unique<cuda::DeviceMemory>(sizeof(Verdict));
    DAVIT_CUDA_CHECK(cudaMemset(verdict_->get(), 0, sizeof(Verdict)));
    // All kernels are loaded before one of them waits.
    fill(regions_->stream(), send_->get(), 16, 0);
    check(regions_->stream(), send_->get(), 16, 0, verdict());
    DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
    DAVIT_CUDA_CHECK(cudaMemset(verdict_->get(), 0, sizeof(Verdict)));
    DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
  }
  void TearDown() override {
    if (regions_ != nullptr) barrier();
  }

  [[nodiscard]] Verdict* verdict() const { return reinterpret_cast<Verdict*>(verdict_->get()); }
  [[nodiscard]] static std::uint32_t few(std::uint32_t rounds) { return seat().is_shared ? 8 : rounds; }

  [[nodiscard]] cuda::WordsPair pair(Kind const& kind, std::uint32_t start) const {
    auto made = regions_->make_pair(kind.form, kind.bank / cuda::words_batch_bytes(kind.form), start, kind.plan);
    made.from.base = send_->get();
    made.to.base = receive_->get();
    barrier();
    return made;
  }

  void submit(cuda::WordsPair& made, Kind const& kind, std::uint32_t round, std::uint32_t sent,
              std::uint32_t received) {
    made.from.bytes = sent;
    made.to.bytes = received;
    int const rank = seat().rank;
    if (sent > 0) fill(regions_->stream(), send_->get(), sent, seed_of(round, rank));
    regions_->submit(made, kind.warps);
    if (received > 0) check(regions_->stream(), receive_->get(), received, seed_of(round, 1 - rank), verdict());
  }

  void finish(std::uint64_t units, std::string const& what) {
    try {
      regions_->wait(kLimit);
    } catch (std::exception const& error) {
      std::fprintf(stderr, "rank %d, %s: %s\n", seat().rank, what.c_str(), error.what());
      std::fflush(nullptr);
      MPI_Abort(MPI_COMM_WORLD, 1);  // the other rank would wait in a barrier
    }
    Verdict found{};
    DAVIT_CUDA_CHECK(cudaMemcpy(&found, verdict(), sizeof found, cudaMemcpyDeviceToHost));
    EXPECT_EQ(found.bad, 0U) << what << ": " << text_of(found);
    EXPECT_EQ(found.checked, units) << what;
    DAVIT_CUDA_CHECK(cudaMemset(verdict(), 0, sizeof found));
    DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
    barrier();
  }

  void move(Kind const& kind, std::uint32_t start) {
    auto made = pair(kind, start);
    auto const rounds = few(kind.rounds);
    for (std::uint32_t round = 0; round < rounds; ++round) submit(made, kind, round, kind.bytes, kind.bytes);
    finish(std::uint64_t{rounds} * kind.bytes / kUnitBytes,
           "form " + std::to_string(static_cast<unsigned>(kind.form)) + ", " + std::to_string(kind.bytes) + " bytes, " +
               std::to_string(kind.plan.writers) + " and " + std::to_string(kind.plan.readers) + " blocks, " +
               std::to_string(rounds) + " rounds from number " + std::to_string(start));
  }

  std::unique_ptr<WordsRegions> regions_;
  std::unique_ptr<cuda::DeviceMemory> send_;
  std::unique_ptr<cuda::DeviceMemory> receive_;
  std::unique_ptr<cuda::DeviceMemory> verdict_;
  Watchdog watchdog_{std::chrono::minutes(9)};
};

constexpr std::uint32_t kKiB = 1024;

TEST_F(WordsPairs, MoveManyRounds) {
  for (Kind const& kind : {
           Kind{WordsForm::unit12, {1, 0, 0, false}, 8, kKiB, 32 * kKiB, 20000},
           Kind{WordsForm::unit12, {4, 0, 0, false}, 8, 16 * kKiB, 32 * kKiB, 20000},
           Kind{WordsForm::line60, {2, 4, 0, false}, 16, 64 * kKiB, 128 * kKiB, 20000},
           Kind{WordsForm::line60, {2, 2, 37, false}, 16, 256 * kKiB, 512 * kKiB, 20000},
           Kind{WordsForm::line60, {4, 0, 0, false}, 16, 256 * kKiB, 64 * kKiB, 2000},
           Kind{WordsForm::line62, {4, 4, 42, true}, 16, 1024 * kKiB, 2048 * kKiB, 2000},
           Kind{WordsForm::line62, {4, 2, 42, false}, 16, 4096 * kKiB, 512 * kKiB, 500},
           Kind{WordsForm::unit4, {2, 2, 0, false}, 16, 64 * kKiB, 64 * kKiB, 2000},
       }) {
    move(kind, 1);
    if (HasFailure()) return;
  }
}

TEST_F(WordsPairs, NumbersWrap) {
  Kind kind{WordsForm::line62, {2, 2, 0, false}, 8, 16 * kKiB, 32 * kKiB, 100};
  for (std::uint32_t const start : {0x7ffcU, 0xfffcU, 0xfffffffcU}) move(kind, start);
  kind.form = WordsForm::unit12;
  for (std::uint32_t const start : {0x7ffffffcU, 0xfffffffcU}) move(kind, start);
}

TEST_F(WordsPairs, MoveUnequalSizes) {
  Kind const kind{WordsForm::line60, {2, 2, 0, false}, 8, 0, 64 * kKiB, 2000};
  std::uint64_t seed = process_seed();
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  Random random(7, seed);  // the same on both ranks
  auto made = pair(kind, 1);
  std::uint64_t units = 0;
  for (std::uint32_t round = 0; round < few(kind.rounds); ++round) {
    std::uint32_t bytes[2];
    for (auto& of_rank : bytes) {
      of_rank = random.chance(0.2) ? 0 : static_cast<std::uint32_t>(16 * random.between(1, 16 * kKiB));
    }
    auto const sent = bytes[seat().rank];
    auto const received = bytes[1 - seat().rank];
    submit(made, kind, round, sent, received);
    units += received / kUnitBytes;
  }
  finish(units, "unequal sizes");
}

TEST_F(WordsPairs, WaitForRanksThatSleep) {
  Kind const kind{WordsForm::line60, {2, 2, 0, false}, 8, 200 * kKiB, 64 * kKiB, 6};
  auto made = pair(kind, 1);
  for (std::uint32_t round = 0; round < kind.rounds; ++round) {
    if (static_cast<int>(round % 2) == seat().rank) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    submit(made, kind, round, kind.bytes, kind.bytes);
  }
  finish(std::uint64_t{kind.rounds} * kind.bytes / kUnitBytes, "sleeping ranks");
}

TEST_F(WordsPairs, UnitsAreWhole) {
  cuda::PinnedMemory const memory(sizeof(cuda::UnitCounts));
  auto* const counts = reinterpret_cast<cuda::UnitCounts*>(memory.get());
  for (int time = 0; time < 2; ++time) {  // the first loads the kernel
    *counts = {};
    barrier();
    auto const begin = std::chrono::steady_clock::now();
    cuda::launch_unit_probe(regions_->stream(), regions_->own(), regions_->theirs(), std::chrono::milliseconds(20),
                            counts);
    regions_->wait(kLimit);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  std::printf("rank %d%s: %llu changed lines, torn: %llu of 64 bytes, %llu of 16, %llu of 8\n", seat().rank,
              seat().is_shared ? ", GPU shared" : "", counts->changed, counts->torn64, counts->torn16, counts->torn8);
  EXPECT_EQ(counts->torn8, 0U);
  EXPECT_EQ(counts->torn16, 0U);
  if (!seat().is_shared) {
    EXPECT_GT(counts->changed, 10000U);
  }
}

}  // namespace
}  // namespace davit::test
