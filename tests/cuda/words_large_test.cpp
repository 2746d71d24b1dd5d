// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sizes and row numbers at which 32 bits end: the largest message, and rows that lie more than 4 GiB apart. One rank
/// sends to itself; data are made and checked by the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda/patterns.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/random.hpp"
#include "transports/cuda/handles.hpp"
#include "transports/cuda/words.hpp"

namespace davit::test {
namespace {

using cuda::DeviceMemory;
using cuda::WordsForm;

constexpr std::array kForms{WordsForm::line62, WordsForm::line60, WordsForm::unit12, WordsForm::unit4};

class WordsLarge : public testing::TestWithParam<WordsForm> {
 protected:
  void SetUp() override {
    std::fill_n(memory_.get(), region() + kLines, std::byte{});
    DAVIT_CUDA_CHECK(cudaMemset(arrivals_.get(), 0, 64));
    cuda::load_words_kernels(stream_.get());
    stream_.wait();
  }
  [[nodiscard]] std::size_t region() const { return cuda::words_region_bytes(GetParam(), kBatches); }
  [[nodiscard]] static bool has_room(std::size_t bytes) {
    std::size_t free = 0;
    std::size_t total = 0;
    DAVIT_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free > bytes + (std::size_t{256} << 20U);
  }

  void exchange(cuda::WordsSource const& from, cuda::WordsTarget const& to) {
    auto* const lines = reinterpret_cast<std::uint32_t*>(memory_.get() + region());
    cuda::WordsPair pair{};
    pair.out = {memory_.get(), lines, kBatches, generation_, GetParam()};
    pair.in = pair.out;
    pair.from = from;
    pair.to = to;
    pair.arrivals = reinterpret_cast<std::uint32_t*>(arrivals_.get());
    pair.plan = {8, 8, 0, false};
    auto* const failed = lines + 16;
    cuda::launch(stream_.get(), device_, {{&pair, 1}, 16, failed, failed + 16});
    generation_ += cuda::words_generations(GetParam(), kBatches, from.bytes);
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!stream_.is_done()) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      *static_cast<std::uint32_t volatile*>(failed) = 1;
      stream_.wait();
      FAIL() << "does not end";
    }
    ASSERT_FALSE(cuda::words_left(failed[16]));
  }
  void expect_filled(DeviceMemory const& memory, std::size_t bytes, std::uint32_t seed) const {
    DeviceMemory const verdict(sizeof(Verdict));
    DAVIT_CUDA_CHECK(cudaMemsetAsync(verdict.get(), 0, sizeof(Verdict), stream_.get()));
    check(stream_.get(), memory.get(), bytes, seed, reinterpret_cast<Verdict*>(verdict.get()));
    Verdict found{};
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(&found, verdict.get(), sizeof found, cudaMemcpyDeviceToHost, stream_.get()));
    stream_.wait();
    EXPECT_EQ(found.bad, 0U) << text_of(found);
    EXPECT_EQ(found.checked, bytes / kUnitBytes);
  }

  static constexpr std::uint32_t kBatches = 256;
  static constexpr std::size_t kLines = 192;  // credits, failed word, left word
  cuda::PinnedMemory memory_{region() + kLines};
  DeviceMemory arrivals_{64};
  cuda::Stream stream_;
  cuda::WordsDevice device_ = cuda::words_device(0);
  std::uint32_t generation_ = 1;
  Random random_;
  Watchdog watchdog_{std::chrono::minutes(4)};
};

TEST_P(WordsLarge, MovesTheLargestMessage) {
  constexpr std::size_t kBytes = cuda::kMostWordsBytes;
  if (!has_room(2 * kBytes)) GTEST_SKIP() << "needs 4 GiB of GPU memory";
  DeviceMemory const from(kBytes);
  DeviceMemory const to(kBytes);
  fill(stream_.get(), from.get(), kBytes, 5);
  exchange({from.get(), nullptr, cuda::kMostWordsBytes, 0}, {to.get(), nullptr, nullptr, cuda::kMostWordsBytes, 0});
  if (!HasFatalFailure()) expect_filled(to, kBytes, 5);
}

/// Lists in device memory, which is where users have them.
TEST_P(WordsLarge, ReachesRowsBeyond4GiB) {
  constexpr std::size_t kFar = std::size_t{5} << 30U;
  constexpr std::uint32_t kRow = 4096;
  constexpr std::uint32_t kRows = 2000;
  constexpr std::uint32_t kBytes = kRow * kRows;
  if (!has_room(kFar + 2 * kBytes)) GTEST_SKIP() << "needs 5 GiB of GPU memory";
  DeviceMemory const far(kFar);
  DeviceMemory const near(kBytes);
  DeviceMemory const back(kBytes);
  // Different rows, half of them in the last GiB.
  std::vector<std::uint32_t> rows(kRows);
  constexpr std::uint32_t kStep = kFar / kRow / kRows;
  for (std::uint32_t i = 0; i < kRows; ++i) {
    rows[i] = i % 2 == 0 ? i * kStep : static_cast<std::uint32_t>(kFar / kRow) - 1 - i;
  }
  std::shuffle(rows.begin(), rows.end(), random_.engine());
  std::vector<std::uint32_t> first(kRows + 1);
  std::iota(first.begin(), first.end(), 0U);
  DeviceMemory const row_list(rows.size() * 4);
  DeviceMemory const first_list(first.size() * 4);
  DAVIT_CUDA_CHECK(cudaMemcpy(row_list.get(), rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  DAVIT_CUDA_CHECK(cudaMemcpy(first_list.get(), first.data(), first.size() * 4, cudaMemcpyHostToDevice));
  DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
  auto const* const list = reinterpret_cast<std::uint32_t const*>(row_list.get());
  for (auto const* places : {static_cast<std::byte*>(nullptr), first_list.get()}) {
    fill(stream_.get(), near.get(), kBytes, 6);
    exchange({near.get(), nullptr, kBytes, 0},
             {far.get(), list, reinterpret_cast<std::uint32_t const*>(places), kBytes, kRow});
    if (HasFatalFailure()) return;
    for (std::uint32_t const row : {0U, kRows / 2, kRows - 1}) {  // where the host reckons them to be
      std::array<std::uint32_t, kRow / 4> words{};
      DAVIT_CUDA_CHECK(cudaMemcpyAsync(words.data(), far.get() + std::size_t{rows[row]} * kRow, kRow,
                                       cudaMemcpyDeviceToHost, stream_.get()));
      stream_.wait();
      for (std::uint32_t i = 0; i < words.size(); ++i) {
        ASSERT_EQ(words[i], word_of(6, row * (kRow / 4) + i)) << "row " << row << " at " << rows[row];
      }
    }
    exchange({far.get(), list, kBytes, kRow}, {back.get(), nullptr, nullptr, kBytes, 0});
    if (HasFatalFailure()) return;
    expect_filled(back, kBytes, 6);
    DAVIT_CUDA_CHECK(cudaMemsetAsync(far.get(), 0, kFar, stream_.get()));
    DAVIT_CUDA_CHECK(cudaMemsetAsync(back.get(), 0, kBytes, stream_.get()));
  }
  stream_.wait();
}

std::string name_of(testing::TestParamInfo<WordsForm> const& info) {
  constexpr char const* names[] = {"line62", "line60", "unit12", "unit4"};
  return names[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Gpu, WordsLarge, testing::ValuesIn(kForms), name_of);

}  // namespace
}  // namespace davit::test
