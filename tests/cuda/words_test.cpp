// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchange kernel: every byte right, none besides, whatever the sizes, addresses, rows, numbers and the order in
/// which ranks come.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>
#include <tuple>

#include "davit/error.hpp"
#include "tests/cuda/patterns.hpp"
#include "tests/cuda/words_field.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/random.hpp"

namespace davit::test {
namespace {

using cuda::WordsForm;
using cuda::WordsPlan;
using std::chrono::milliseconds;

constexpr std::array kForms{WordsForm::line62, WordsForm::line60, WordsForm::unit12, WordsForm::unit4};
// Self-clocked in one block and in two; split; paced; with readers that wait for a batch's end.
constexpr std::array kPlans{WordsPlan{1, 0, 0, false}, WordsPlan{2, 0, 0, false}, WordsPlan{1, 1, 0, false},
                            WordsPlan{2, 3, 20, false}, WordsPlan{2, 2, 0, true}};

class Words : public testing::TestWithParam<std::tuple<WordsForm, WordsPlan>> {
 protected:
  [[nodiscard]] static FieldSetup setup(int ranks = 2) {
    FieldSetup setup;
    setup.ranks = ranks;
    std::tie(setup.form, setup.plan) = GetParam();
    return setup;
  }
  [[nodiscard]] std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_.between(0, std::int64_t{bound} - 1));
  }
  /// Nothing, a few bytes, about a whole number of batches, or several generations.
  [[nodiscard]] std::uint32_t random_size() {
    auto const data = cuda::words_batch_data(std::get<0>(GetParam()));
    switch (below(5)) {
      case 0:
        return 0;
      case 1:
        return 1 + below(40);
      case 2:
        return data * (1 + below(6)) - 8 + below(17);
      default:
        return 1 + below(60000);
    }
  }
  [[nodiscard]] static bool failed() { return HasFailure(); }
  void move_blocks(int ranks);
  void move_rows(int ranks);

  Random random_;
  Watchdog watchdog_{std::chrono::minutes(4)};
};

std::vector<Message> each_pair(int ranks, auto const& bytes_of) {
  std::vector<Message> messages;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to && ranks > 1) continue;
      Message message;
      message.from = from;
      message.to = to;
      message.bytes = bytes_of(from, to);
      messages.push_back(message);
    }
  }
  return messages;
}

TEST_P(Words, MovesShortMessagesAtEveryAlignment) {
  Field field(setup());
  for (std::uint32_t bytes = 1; bytes <= 20; ++bytes) {
    auto messages = each_pair(2, [&](int, int) { return bytes; });
    for (auto& message : messages) message.from_offset = below(17), message.to_offset = below(17);
    field.exchange(messages);
    if (failed()) return;
  }
}

void Words::move_blocks(int ranks) {
  Field field(setup(ranks));
  for (int round = 0; round < 12; ++round) {
    auto messages = each_pair(ranks, [&](int, int) { return random_size(); });
    for (auto& message : messages) {
      // Aligned to 16 bytes at both ends, to 4, or not at all.
      std::uint32_t const step = random_.one_of({16U, 4U, 1U});
      message.from_offset = step * below(9);
      message.to_offset = step * below(9);
    }
    field.exchange(messages);
    if (failed()) return;
  }
  field.exchange(each_pair(ranks, [](int, int) { return 0U; }));
  field.exchange(each_pair(ranks, [](int from, int to) { return from < to ? 5000U : 0U; }));
  field.exchange(each_pair(ranks, [](int from, int) { return from == 0 ? 30000U : 0U; }));
}

void Words::move_rows(int ranks) {
  Field field(setup(ranks));
  for (std::uint32_t const row_bytes : {1U, 4U, 7U, 16U, 40U, 48U, 1024U, 2050U, 4096U}) {
    for (bool const is_odd : {false, true}) {
      // At most 48 KiB a message, arrays of rows twice that.
      std::uint32_t const most = std::min<std::uint32_t>(49152 / row_bytes, 700);
      auto messages = each_pair(ranks, [&](int, int) { return row_bytes * below(most + 1); });
      for (auto& message : messages) {
        auto const rows = message.bytes / row_bytes;
        if (is_odd) message.from_offset = below(17), message.to_offset = below(17);
        if (rows > 0 && random_.chance(0.8)) {
          message.from_row_bytes = row_bytes;
          for (std::uint32_t i = 0; i < rows; ++i) message.from_rows.push_back(below(2 * most));
        }
        if (rows == 0 || random_.chance(0.2)) continue;
        message.to_row_bytes = row_bytes;
        std::vector<std::uint32_t> places(std::size_t{2} * most);
        std::iota(places.begin(), places.end(), 0U);
        std::shuffle(places.begin(), places.end(), random_.engine());
        if (random_.chance(0.4)) {
          message.to_rows.assign(places.begin(), places.begin() + rows);
          continue;
        }
        // Each row to up to three places, as far as there are any.
        message.to_first.push_back(0);
        for (std::uint32_t i = 0; i < rows; ++i) {
          auto const end = std::min<std::size_t>(message.to_first.back() + below(4), places.size());
          message.to_first.push_back(static_cast<std::uint32_t>(end));
        }
        places.resize(std::max<std::size_t>(message.to_first.back(), 1));
        message.to_rows = std::move(places);
      }
      field.exchange(messages);
      if (failed()) {
        ADD_FAILURE() << "with rows of " << row_bytes << " bytes" << (is_odd ? " at odd addresses" : "");
        return;
      }
    }
  }
}

TEST_P(Words, MovesUnequalBlocks) {
  for (int const ranks : {2, 3, 4}) {
    move_blocks(ranks);
    if (failed()) return;
  }
}

TEST_P(Words, GathersAndScattersRows) { move_rows(3); }

/// One kernel that is both ends: also for tools that let kernels run only one after the other.
TEST_P(Words, ExchangesWithItself) {
  move_blocks(1);
  if (!failed()) move_rows(1);
}

TEST_P(Words, WaitsForLateRanks) {
  Field field(setup(3));
  for (int late = 0; late < 3; ++late) {
    // More than two generations: writers wait for the late rank's credits, too.
    field.exchange(each_pair(3, [&](int, int) { return 20000 + below(40000); }), late, milliseconds(300));
    if (failed()) return;
  }
}

TEST_P(Words, NumbersWrap) {
  for (std::uint32_t const start : {0x7ffcU, 0xfffcU, 0x7ffffffcU, 0xfffffffcU}) {
    auto changed = setup();
    changed.start = start;
    Field field(changed);
    for (int round = 0; round < 12; ++round) {
      field.exchange(each_pair(2, [&](int, int) { return random_.chance(0.7) ? 1 + below(100) : random_size(); }));
      if (failed()) return;
    }
  }
}

TEST_P(Words, LeavesWhenTheRankHasFailed) {
  Field field(setup());
  auto const credit = each_pair(2, [](int from, int) { return from == 0 ? 100000U : 0U; });
  auto const data = each_pair(2, [](int from, int) { return from == 1 ? 100000U : 0U; });
  for (auto const* messages : {&credit, &data}) {
    Field alone(setup());
    alone.submit(0, *messages);
    std::this_thread::sleep_for(milliseconds(50));
    ASSERT_FALSE(cuda::words_left(alone.left(0))) << text_of(setup()) << ": left before the rank failed";
    alone.say_failed(0);
    ASSERT_TRUE(alone.finish(milliseconds(1000))) << text_of(setup()) << ": still waits after a second";
    auto const left = cuda::words_left(alone.left(0));
    ASSERT_TRUE(left) << text_of(setup()) << ": ended, and nobody has come";
    EXPECT_EQ(left->peer, 1U);
    EXPECT_EQ(left->for_credit, messages == &credit) << text_of(setup());
  }
  // The context is as good as before.
  field.exchange(each_pair(2, [](int, int) { return 10000U; }));
}

TEST_P(Words, CallsFollowEachOther) {
  // A kernel may begin while the one before it is ending. Each call has places of its own, so all can be looked at.
  constexpr std::uint32_t kCalls = 90;
  constexpr std::uint32_t kPlace = 1400;
  for (int const ranks : {2, 3}) {
    Field field(setup(ranks));
    std::vector<std::vector<Message>> calls;
    for (std::uint32_t call = 0; call < kCalls; ++call) {
      auto& messages = calls.emplace_back(each_pair(ranks, [&](int, int) { return below(kPlace + 1); }));
      for (auto& message : messages) message.from_offset = message.to_offset = std::size_t{call} * kPlace;
    }
    field.exchange_in_a_row(calls);
  }
}

/// Rounds follow each other without the host; each moves other data, made and checked by the GPU.
TEST_P(Words, PipelinedRounds) {
  constexpr std::uint32_t kRounds = 1000;
  for (std::uint32_t const bytes : {std::uint32_t{64} << 10U, std::uint32_t{256} << 10U}) {
    auto changed = setup();
    changed.warps = 8;
    changed.area = std::size_t{512} << 10U;
    changed.batches = 128 * 1024 / cuda::words_batch_bytes(changed.form);
    Field field(changed);
    std::vector<cuda::DeviceMemory> memories;
    for (int rank = 0; rank < 2; ++rank) {
      DAVIT_CUDA_CHECK(cudaMemset(memories.emplace_back(sizeof(Verdict)).get(), 0, sizeof(Verdict)));
    }
    DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
    auto const messages = each_pair(2, [&](int, int) { return bytes; });
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      for (int rank = 0; rank < 2; ++rank) {
        fill(field.stream(rank), field.send_area(rank, 1 - rank) + Field::kMargin, bytes, seed_of(round, rank));
        field.submit(rank, messages);
        check(field.stream(rank), field.receive_area(rank, 1 - rank) + Field::kMargin, bytes, seed_of(round, 1 - rank),
              reinterpret_cast<Verdict*>(memories[static_cast<std::size_t>(rank)].get()));
      }
    }
    ASSERT_TRUE(field.finish(std::chrono::seconds(60))) << text_of(changed) << ": rounds of " << bytes << " do not end";
    for (int rank = 0; rank < 2; ++rank) {
      Verdict found{};
      DAVIT_CUDA_CHECK(
          cudaMemcpy(&found, memories[static_cast<std::size_t>(rank)].get(), sizeof found, cudaMemcpyDeviceToHost));
      EXPECT_EQ(found.bad, 0U) << text_of(changed) << ", " << bytes << " bytes, rank " << rank << ": "
                               << text_of(found);
      EXPECT_EQ(found.checked, std::uint64_t{kRounds} * bytes / kUnitBytes);
    }
    if (failed()) return;
  }
}

std::string name_of(testing::TestParamInfo<Words::ParamType> const& info) {
  auto const& [form, plan] = info.param;
  constexpr char const* forms[] = {"line62", "line60", "unit12", "unit4"};
  return std::string(forms[static_cast<std::size_t>(form)]) + "_" + std::to_string(plan.writers) +
         (plan.readers == 0 ? "_self_clocked" : "_to_" + std::to_string(plan.readers)) +
         (plan.rate > 0 ? "_paced" : "") + (plan.peeks ? "_peeking" : "");
}

INSTANTIATE_TEST_SUITE_P(Gpu, Words, testing::Combine(testing::ValuesIn(kForms), testing::ValuesIn(kPlans)), name_of);

/// Ends may run their share as they like.
TEST(WordsMixed, ARankMayBeSelfClockedAndItsPeerNot) {
  auto const device = cuda::words_device(0);
  constexpr std::uint32_t kBatches = 3;
  constexpr std::uint32_t kBytes = 100000;
  auto const region = cuda::words_region_bytes(WordsForm::line60, kBatches);
  cuda::PinnedMemory const memory(2 * (region + 64) + 128);
  std::fill_n(memory.get(), 2 * (region + 64) + 128, std::byte{});
  cuda::DeviceMemory const buffers(std::size_t{4} * kBytes);
  cuda::DeviceMemory const arrivals(128);
  DAVIT_CUDA_CHECK(cudaMemset(arrivals.get(), 0, 128));
  std::vector<std::byte> sent(2 * kBytes);
  fill(sent.data(), sent.size(), 99);
  DAVIT_CUDA_CHECK(cudaMemcpy(buffers.get(), sent.data(), sent.size(), cudaMemcpyHostToDevice));
  cuda::Stream const streams[2];
  cuda::load_words_kernels(streams[0].get());
  DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
  auto const channel = [&](int from) {
    auto* const begin = memory.get() + static_cast<std::size_t>(from) * (region + 64);
    return cuda::WordsChannel{begin, reinterpret_cast<std::uint32_t*>(begin + region), kBatches, 1, WordsForm::line60};
  };
  auto* const words = reinterpret_cast<std::uint32_t*>(memory.get() + 2 * (region + 64));
  for (int rank = 0; rank < 2; ++rank) {
    cuda::WordsPair pair{};
    pair.out = channel(rank);
    pair.in = channel(1 - rank);
    pair.from = {buffers.get() + static_cast<std::size_t>(rank) * kBytes, nullptr, kBytes, 0};
    pair.to = {buffers.get() + static_cast<std::size_t>(2 + rank) * kBytes, nullptr, nullptr, kBytes, 0};
    pair.arrivals = reinterpret_cast<std::uint32_t*>(arrivals.get() + std::size_t{64} * static_cast<std::size_t>(rank));
    pair.plan = rank == 0 ? WordsPlan{1, 0, 0, false} : WordsPlan{2, 2, 0, false};
    cuda::launch(streams[rank].get(), device, {{&pair, 1}, rank == 0 ? 2U : 16U, words, words + 16});
  }
  auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!streams[0].is_done() || !streams[1].is_done()) {
    if (std::chrono::steady_clock::now() < deadline) continue;
    *static_cast<std::uint32_t volatile*>(words) = 1;
    ADD_FAILURE() << "does not end";
    break;
  }
  for (auto const& stream : streams) stream.wait();
  std::vector<std::byte> got(2 * kBytes);
  DAVIT_CUDA_CHECK(cudaMemcpy(got.data(), buffers.get() + 2 * kBytes, got.size(), cudaMemcpyDeviceToHost));
  for (std::size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(got[i], sent[kBytes + i]) << "rank 0, byte " << i;
    ASSERT_EQ(got[kBytes + i], sent[i]) << "rank 1, byte " << i;
  }
}

TEST(WordsErrors, NameWhatIsOutOfBounds) {
  cuda::Stream const stream;
  cuda::WordsDevice const device{false, 100, 1};
  cuda::PinnedMemory const memory(8192);
  auto* const words = reinterpret_cast<std::uint32_t*>(memory.get() + 4096);
  cuda::WordsPair right{};
  right.out = right.in = {memory.get(), words, 1, 1, WordsForm::unit12};
  right.from = {memory.get(), nullptr, 16, 0};
  right.arrivals = words;
  auto const refuses = [&](auto const& spoil, std::string const& text) {
    auto pair = right;
    cuda::WordsExchange exchange{{&pair, 1}, 4, words, words};
    spoil(pair, exchange);
    try {
      cuda::launch(stream.get(), device, exchange);
      ADD_FAILURE() << "no error about: " << text;
    } catch (UsageError const& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  using Pair = cuda::WordsPair;
  using Exchange = cuda::WordsExchange;
  refuses([](Pair&, Exchange& e) { e.warps = 17; }, "1 to 16 warps, not 17");
  refuses([](Pair&, Exchange& e) { e.failed = nullptr; }, "failed word");
  refuses([](Pair& p, Exchange&) { p.out.region += 16; }, "multiple of 64");
  refuses([](Pair& p, Exchange&) { p.in.batches = 0; }, "2^30 bytes of batches, not 0");
  refuses([](Pair& p, Exchange&) { p.in.credits = nullptr; }, "credits");
  refuses([](Pair& p, Exchange&) { p.from.bytes = 0x80000001U; }, "2^31 bytes, not 2147483649");
  refuses([](Pair& p, Exchange&) { p.from.base = nullptr; }, "memory is there");
  refuses([&](Pair& p, Exchange&) { p.from.rows = words, p.from.row_bytes = 5; }, "whole rows, not 5");
  refuses([](Pair& p, Exchange&) { p.plan.writers = 0; }, "block that sends, not 0");
  refuses([](Pair& p, Exchange&) { p.plan.writers = 60, p.plan.readers = 60; }, "fit the device at once, not 120");
  refuses([](Pair& p, Exchange&) { p.plan.rate = -1; }, "rate");
  EXPECT_TRUE(stream.is_done());
}

}  // namespace
}  // namespace davit::test
