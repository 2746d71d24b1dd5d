// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where bytes lie in a words region, as the GPU's lanes compute it, gone through on the CPU.
#include "transports/cuda/words_layout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/support/random.hpp"

namespace davit::test {
namespace {

using namespace davit::cuda;

constexpr std::array kForms{WordsForm::line62, WordsForm::line60, WordsForm::unit12, WordsForm::unit4};

std::string name_of(WordsForm form) {
  return std::array{"line62", "line60", "unit12", "unit4"}[static_cast<std::size_t>(form)];
}

/// Calls `body` with the form as a constant.
template <class Body>
void with(WordsForm form, Body&& body) {
  switch (form) {
    case WordsForm::line62:
      return body.template operator()<WordsForm::line62>();
    case WordsForm::line60:
      return body.template operator()<WordsForm::line60>();
    case WordsForm::unit12:
      return body.template operator()<WordsForm::unit12>();
    case WordsForm::unit4:
      return body.template operator()<WordsForm::unit4>();
  }
}

std::size_t unit_bytes(WordsForm form) { return words_has_lines(form) ? 64 : form == WordsForm::unit12 ? 16 : 8; }
std::size_t flag_bytes(WordsForm form) { return form == WordsForm::line62 ? 2 : 4; }

std::vector<std::byte> random_bytes(Random& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.word());
  return bytes;
}

/// A batch as a warp stores it.
std::vector<std::byte> packed(WordsForm form, std::uint32_t flag, std::vector<std::byte> const& message) {
  std::vector<std::byte> batch(words_batch_bytes(form));
  with(form, [&]<WordsForm fixed>() {
    for (unsigned lane = 0; lane < kWordsLanes; ++lane) {
      WordsHeld held{};
      for (unsigned i = 0; i < kWordsHeld; ++i) {
        if (words_has_vector(form, lane, i)) {
          std::memcpy(&held[i], message.data() + std::size_t{16} * words_vector(form, lane, i), 16);
        }
      }
      words_pack<fixed>(words_carries_flag(form, lane), flag, held);
      for (unsigned step = 0; step < words_steps(form); ++step) {
        std::memcpy(batch.data() + std::size_t{step} * kWordsStepBytes + std::size_t{lane} * 16,
                    &held[words_place(form, step)], 16);
      }
    }
  });
  return batch;
}

/// What a warp makes of a batch. @param lanes_here gets the lanes that see all their flags
std::vector<std::byte> unpacked(WordsForm form, std::uint32_t flag, std::vector<std::byte> const& batch,
                                unsigned& lanes_here) {
  std::vector<std::byte> message(words_batch_data(form));
  lanes_here = 0;
  with(form, [&]<WordsForm fixed>() {
    for (unsigned lane = 0; lane < kWordsLanes; ++lane) {
      bool const carries = words_carries_flag(form, lane);
      WordsHeld held{};
      for (unsigned step = 0; step < words_steps(form); ++step) {
        std::memcpy(&held[words_place(form, step)],
                    batch.data() + std::size_t{step} * kWordsStepBytes + std::size_t{lane} * 16, 16);
      }
      lanes_here += words_is_here<fixed>(carries, flag, held) ? 1U : 0U;
      words_unpack<fixed>(carries, held);
      for (unsigned i = 0; i < kWordsHeld; ++i) {
        if (words_has_vector(form, lane, i)) {
          std::memcpy(message.data() + std::size_t{16} * words_vector(form, lane, i), &held[i], 16);
        }
      }
    }
  });
  return message;
}

TEST(WordsLayout, VectorsAreDealtOnce) {
  for (auto const form : kForms) {
    std::set<unsigned> seen;
    unsigned count = 0;
    for (unsigned lane = 0; lane < kWordsLanes; ++lane) {
      for (unsigned i = 0; i < kWordsHeld; ++i) {
        if (!words_has_vector(form, lane, i)) continue;
        ++count;
        seen.insert(words_vector(form, lane, i));
      }
    }
    EXPECT_EQ(count, words_vectors(form)) << name_of(form);
    EXPECT_EQ(seen.size(), count) << name_of(form);
    EXPECT_EQ(*seen.rbegin(), count - 1) << name_of(form);
  }
  EXPECT_EQ(words_batch_data(WordsForm::line62), 64U * 62);
  EXPECT_EQ(words_batch_data(WordsForm::line60), 32U * 60);
  EXPECT_EQ(words_batch_data(WordsForm::unit12), 128U * 12);
  EXPECT_EQ(words_batch_data(WordsForm::unit4), 256U * 4);
}

TEST(WordsLayout, EveryUnitEndsWithItsFlag) {
  Random random;
  for (auto const form : kForms) {
    std::uint32_t const flag = words_flag(form, 0xdeadbeefU);
    auto const batch = packed(form, flag, random_bytes(random, words_batch_data(form)));
    for (std::size_t end = unit_bytes(form); end <= batch.size(); end += unit_bytes(form)) {
      std::uint32_t got = 0;
      std::memcpy(&got, batch.data() + end - flag_bytes(form), flag_bytes(form));
      ASSERT_EQ(got, flag) << name_of(form) << ", unit that ends at " << end;
    }
    Quad last{};
    std::memcpy(&last, batch.data() + batch.size() - 16, 16);
    EXPECT_EQ(words_last_flag(form, last), flag) << name_of(form);
  }
}

TEST(WordsLayout, WhatIsPackedIsUnpacked) {
  Random random;
  for (auto const form : kForms) {
    for (int time = 0; time < 50; ++time) {
      auto const flag = words_flag(form, static_cast<std::uint32_t>(random.word()));
      auto const message = random_bytes(random, words_batch_data(form));
      unsigned lanes_here = 0;
      ASSERT_EQ(unpacked(form, flag, packed(form, flag, message), lanes_here), message) << name_of(form);
      ASSERT_EQ(lanes_here, kWordsLanes) << name_of(form);
    }
  }
}

TEST(WordsLayout, EachByteOfTheMessageLiesInOneUnitOfData) {
  // One message byte at a time: exactly one byte of the batch follows it, none of them a flag's, all of them different.
  for (auto const form : kForms) {
    std::vector<std::byte> message(words_batch_data(form));
    auto const empty = packed(form, 0, message);
    std::set<std::size_t> used;
    for (std::size_t i = 0; i < message.size(); ++i) {
      message[i] = std::byte{0xff};
      auto const batch = packed(form, 0, message);
      message[i] = std::byte{0};
      std::vector<std::size_t> differs;
      for (std::size_t k = 0; k < batch.size(); ++k) {
        if (batch[k] != empty[k]) differs.push_back(k);
      }
      ASSERT_EQ(differs.size(), 1U) << name_of(form) << ", byte " << i;
      ASSERT_LT(differs[0] % unit_bytes(form), unit_bytes(form) - flag_bytes(form)) << name_of(form) << ", byte " << i;
      ASSERT_TRUE(used.insert(differs[0]).second) << name_of(form) << ", byte " << i;
    }
  }
}

TEST(WordsLayout, OneOldUnitIsNoticed) {
  Random random;
  for (auto const form : kForms) {
    auto const message = random_bytes(random, words_batch_data(form));
    auto const old = packed(form, words_flag(form, 6), message);
    auto const fresh = packed(form, words_flag(form, 8), message);
    for (std::size_t begin = 0; begin < fresh.size(); begin += unit_bytes(form)) {
      auto mixed = fresh;
      std::memcpy(mixed.data() + begin, old.data() + begin, unit_bytes(form));
      unsigned lanes_here = 0;
      static_cast<void>(unpacked(form, words_flag(form, 8), mixed, lanes_here));
      ASSERT_EQ(lanes_here, kWordsLanes - 1) << name_of(form) << ", unit at " << begin;
    }
  }
}

TEST(WordsLayout, BatchesAndGenerationsCoverAMessage) {
  for (auto const form : kForms) {
    auto const data = words_batch_data(form);
    EXPECT_EQ(words_batches(form, 0), 0U);
    EXPECT_EQ(words_generations(form, 3, 0), 0U);
    EXPECT_EQ(words_written(form, 3, 0, 0), 0U) << "a message without bytes takes no number";
    EXPECT_EQ(words_batches(form, 1), 1U);
    EXPECT_EQ(words_batches(form, data), 1U);
    EXPECT_EQ(words_batches(form, data + 1), 2U);
    EXPECT_EQ(words_generations(form, 3, 3 * data), 1U);
    EXPECT_EQ(words_generations(form, 3, 3 * data + 1), 2U);
    EXPECT_EQ(words_generations(form, 1, std::uint32_t{1} << 31U), words_batches(form, std::uint32_t{1} << 31U));
    // Batches of one generation lie in one bank, side by side, and those of the next in the other.
    for (std::uint32_t const first : {4U, 5U}) {
      std::set<std::size_t> places;
      for (std::uint32_t batch = 0; batch < 6; ++batch) {
        auto const place = words_offset(form, 3, first, batch);
        EXPECT_EQ(place / (std::size_t{3} * words_batch_bytes(form)), (first + batch / 3) % 2);
        EXPECT_LE(place + words_batch_bytes(form), words_region_bytes(form, 3));
        places.insert(place);
      }
      EXPECT_EQ(places.size(), 6U);
    }
  }
}

/// The promise that lets numbers wrap: when a generation is written, no unit of its bank still has its flag, whatever
/// was written before. Messages are as short as can be, so that old units stay as long as can be.
TEST(WordsLayout, NoOldFlagIsLeftWhenANumberComesAround) {
  constexpr std::uint32_t kBatches = 3;
  auto const form = WordsForm::line62;
  for (std::uint32_t const start : {1U, 0xfff0U, 0x7ffeU, 0xfffffff0U}) {
    // The flag of each batch of both banks, as prepared.
    std::array<std::array<std::uint32_t, kBatches>, 2> flags{};
    for (auto& bank : flags) bank.fill(words_flag(form, start - 1));
    std::uint32_t generation = start;
    Random random(start);
    for (std::uint32_t round = 0; round < 300000; ++round) {
      // One call in a thousand is longer, up to three generations.
      std::uint32_t const bytes =
          round % 1000 == 7 ? 1 + static_cast<std::uint32_t>(random.between(0, 9 * 3968 - 1)) : 8;
      auto const written = words_written(form, kBatches, generation, bytes);
      ASSERT_GE(written, words_batches(form, bytes));
      for (std::uint32_t batch = 0; batch < written; ++batch) {
        std::uint32_t const number = generation + batch / kBatches;
        auto& flag = flags[number % 2][batch % kBatches];
        ASSERT_NE(flag, words_flag(form, number)) << "number " << number << " from " << start;
        flag = words_flag(form, number);
      }
      generation += words_generations(form, kBatches, bytes);
    }
  }
  EXPECT_TRUE(words_fills_bank(WordsForm::line60, 0x80000000U));
  EXPECT_TRUE(words_fills_bank(WordsForm::line60, 1));
  EXPECT_FALSE(words_fills_bank(WordsForm::line60, 0x8000U));
}

}  // namespace
}  // namespace davit::test
