// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is found out at start-up: which units arrive whole, and the pace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/limits.hpp"
#include "transports/cuda/handles.hpp"
#include "transports/cuda/words_probe.hpp"

namespace davit::test {
namespace {

using cuda::UnitCounts;
using cuda::WordsUnits;

TEST(WordsProbe, BelievesWhatItHasSeen) {
  EXPECT_EQ(cuda::believed_units({1000000, 0, 0, 0}), WordsUnits::lines64);
  EXPECT_EQ(cuda::believed_units({1000000, 1, 0, 0}), WordsUnits::units16);
  EXPECT_EQ(cuda::believed_units({1000000, 1, 1, 0}), WordsUnits::units8);
  EXPECT_EQ(cuda::believed_units({1000000, 1, 1, 1}), WordsUnits::none);
  EXPECT_EQ(cuda::believed_units({100, 0, 0, 0}), WordsUnits::units8) << "too little was seen";
  EXPECT_EQ(cuda::believed_units({0, 0, 0, 0}), WordsUnits::units8);
}

class WordsProbes : public testing::Test {
 protected:
  WordsProbes() { std::fill_n(memory_.get(), kBytes, std::byte{}); }
  /// Ranks `count` rewrite each their own and look at the next one's.
  void run(std::size_t count, std::chrono::microseconds time) {
    auto const begin = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < count; ++rank) {
      cuda::launch_unit_probe(streams_[rank].get(), region(rank), region(1 - rank), time, counts() + rank);
    }
    for (auto const& stream : streams_) stream.wait();
    auto const took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, std::chrono::seconds(1));
    EXPECT_GE(took, time);
  }
  [[nodiscard]] std::byte* region(std::size_t rank) const { return memory_.get() + rank * cuda::kUnitProbeBytes; }
  [[nodiscard]] UnitCounts* counts() const {
    return reinterpret_cast<UnitCounts*>(memory_.get() + 2 * cuda::kUnitProbeBytes);
  }

  static constexpr std::size_t kBytes = 2 * cuda::kUnitProbeBytes + 4096;
  cuda::PinnedMemory memory_{kBytes};
  cuda::Stream streams_[2];
  Watchdog watchdog_;
};

TEST_F(WordsProbes, SeesWholeUnits) {
  run(2, std::chrono::milliseconds(1));  // loads the kernel: the two may not have met
  std::fill_n(reinterpret_cast<std::byte*>(counts()), 2 * sizeof(UnitCounts), std::byte{});
  run(2, std::chrono::milliseconds(5));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto const& seen = counts()[rank];
    std::printf("rank %zu: %llu changed lines, torn: %llu of 64 bytes, %llu of 16, %llu of 8\n", rank, seen.changed,
                seen.torn64, seen.torn16, seen.torn8);
    EXPECT_GT(seen.changed, 10000U) << "too little for a verdict";
    EXPECT_EQ(seen.torn8, 0U);
    EXPECT_EQ(seen.torn16, 0U);
    EXPECT_NE(cuda::believed_units(seen), WordsUnits::none);
  }
}

TEST_F(WordsProbes, EndsAlone) {
  run(1, std::chrono::milliseconds(3));
  EXPECT_EQ(counts()[0].changed, 0U) << "nobody has written there";
  EXPECT_EQ(counts()[0].torn64, 0U);
  EXPECT_EQ(cuda::believed_units(counts()[0]), WordsUnits::units8);
}

TEST_F(WordsProbes, NoticesTornLines) {
  // A line whose last 16 bytes are older; one with an older half, one with an older quarter in 16 bytes.
  auto* const words = reinterpret_cast<std::uint32_t*>(region(1));
  words[15] = words[14] = words[13] = words[12] = 7;
  words[16 + 0] = words[16 + 1] = 7;
  words[32 + 3] = 7;
  run(1, std::chrono::milliseconds(3));
  EXPECT_GT(counts()[0].torn8, 0U);
  EXPECT_EQ(counts()[0].torn16, 2 * counts()[0].torn8);
  EXPECT_EQ(counts()[0].torn64, 3 * counts()[0].torn8);
  EXPECT_EQ(cuda::believed_units(counts()[0]), WordsUnits::none);
}

TEST_F(WordsProbes, FindsAPace) {
  auto const device = cuda::words_device(0);
  for (auto const form : {cuda::WordsForm::line62, cuda::WordsForm::unit4}) {
    auto const batches = (std::uint32_t{1} << 20U) / cuda::words_batch_bytes(form);
    cuda::PinnedMemory const region(cuda::words_region_bytes(form, batches) + 64);
    cuda::WordsChannel channel{region.get(), nullptr, batches, 1, form};
    channel.credits = reinterpret_cast<std::uint32_t*>(region.get() + cuda::words_region_bytes(form, batches));
    cuda::prepare_words(channel);
    auto const begin = std::chrono::steady_clock::now();
    auto const pace = cuda::measure_words_pace(device, channel, 16, {4, 4, 0, false});
    std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - begin;
    std::printf("form %u: rate %.1f gives %.1f GB/s, none %.1f, found in %.1f ms\n", static_cast<unsigned>(form),
                pace.rate, pace.paced_gbs, pace.unpaced_gbs, took.count());
    EXPECT_GT(pace.unpaced_gbs, 0.1);
    EXPECT_GT(pace.paced_gbs, 0.1);
    EXPECT_GE(pace.rate, 0);
    EXPECT_GT(channel.generation, 1U);
  }
}

}  // namespace
}  // namespace davit::test
