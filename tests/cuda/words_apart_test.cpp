// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batches stay right when the lanes of a warp come one after the other: flags never before the data they speak for.
#include "tests/cuda/words_apart.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "tests/support/limits.hpp"
#include "transports/cuda/handles.hpp"

namespace davit::test {
namespace {

using cuda::WordsForm;

constexpr std::array kForms{WordsForm::line62, WordsForm::line60, WordsForm::unit12, WordsForm::unit4};
constexpr std::array kAparts{Apart::none, Apart::those_with_flags, Apart::those_without, Apart::every_other};

class WordsApart : public testing::TestWithParam<std::tuple<WordsForm, Apart, Apart>> {
  Watchdog watchdog_;
};

TEST_P(WordsApart, MovesBatches) {
  auto const [form, writer, reader] = GetParam();
  constexpr std::uint32_t kRounds = 300;
  std::size_t const bytes = cuda::words_batch_bytes(form);
  cuda::PinnedMemory const memory(bytes + 128);
  std::fill_n(memory.get(), bytes + 128, std::byte{});
  auto* const credit = reinterpret_cast<std::uint32_t*>(memory.get() + bytes);
  auto* const verdict = reinterpret_cast<ApartVerdict*>(memory.get() + bytes + 64);
  cuda::Stream const stream;
  launch_apart(stream.get(), form, memory.get(), credit, kRounds, writer, reader, verdict);
  stream.wait();
  EXPECT_EQ(verdict->received, kRounds) << "batches do not come";
  EXPECT_EQ(verdict->wrong, 0U) << "vectors, of " << kRounds << " batches";
}

std::string name_of(testing::TestParamInfo<WordsApart::ParamType> const& info) {
  auto const& [form, writer, reader] = info.param;
  constexpr char const* forms[] = {"line62", "line60", "unit12", "unit4"};
  constexpr char const* aparts[] = {"together", "flags_late", "others_late", "every_other_late"};
  return std::string(forms[static_cast<std::size_t>(form)]) + "_written_" + aparts[static_cast<std::size_t>(writer)] +
         "_read_" + aparts[static_cast<std::size_t>(reader)];
}

INSTANTIATE_TEST_SUITE_P(Gpu, WordsApart,
                         testing::Combine(testing::ValuesIn(kForms), testing::ValuesIn(kAparts),
                                          testing::ValuesIn(kAparts)),
                         name_of);

}  // namespace
}  // namespace davit::test
