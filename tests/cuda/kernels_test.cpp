// SPDX-License-Identifier: Apache-2.0
/// @file
/// Row kernels of the device against those of the host: the same bytes, bit by bit.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cuda/bench.hpp"
#include "tests/support/random.hpp"
#include "transports/host/kernels.hpp"

namespace davit::test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::array kSummable{f32, f16, bf16};
constexpr std::size_t kMargin = 64;

class CudaKernels : public testing::Test {
 protected:
  [[nodiscard]] DeviceEngine& engine() { return bench_.engine(); }
  [[nodiscard]] std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(bound) - 1));
  }
  [[nodiscard]] Bytes random_bytes(std::size_t count) {
    Bytes bytes(count);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random_.word());
    return bytes;
  }
  /// Device memory or a slot, by chance, with `data`.
  [[nodiscard]] std::byte* placed(Bytes const& data) {
    auto* const memory = random_.chance(0.5) ? bench_.buffer(data.size()) : bench_.shared(data.size());
    bench_.write(memory, data);
    return memory;
  }

  /// Mostly values that add up to something, and enough of the rest: denormals, near overflow, halfway, infinite, NaN.
  [[nodiscard]] float random_value() {
    auto const bits = static_cast<std::uint32_t>(random_.word());
    float const moderate = std::ldexp(static_cast<float>(static_cast<std::int32_t>(bits)), -28);
    switch (below(24)) {
      case 0:
        return std::bit_cast<float>(bits);
      case 1:
        return std::bit_cast<float>(bits & 0x807fffffU);
      case 2:
        return std::ldexp(moderate, -18);
      case 3:
        return std::ldexp(moderate, bits % 2 != 0 ? 13 : 124);
      case 4:
        return std::bit_cast<float>((bits & 0xbfff0000U) | 0x00008000U);
      case 5:
        return bits % 2 != 0 ? 0.0F : -0.0F;
      default:
        return moderate;
    }
  }
  void fill_row(Dtype dtype, std::byte* row, std::size_t columns) {
    for (std::size_t column = 0; column < columns; ++column) {
      auto* const at = row + column * size_of(dtype);
      host::store_element(dtype, random_value(), at);
      if (below(1000) != 0) continue;
      auto const nan = static_cast<std::uint32_t>(random_.word()) | (dtype == f16 ? 0x7c007c00U : 0x7f807f80U);
      std::memcpy(at, &nan, size_of(dtype));
    }
  }

  void check_moves(std::size_t row_bytes, std::size_t from_offset, std::size_t to_offset) {
    bench_.reuse();
    std::size_t const rows = 1 + below(row_bytes < 1000 ? 300 : 40);
    auto const source = random_bytes(from_offset + rows * row_bytes);
    Bytes expected(kMargin + to_offset + 2 * rows * row_bytes + kMargin, std::byte{0xA5});
    auto* const from = placed(source);
    auto* const to = placed(expected);
    // Some rows go to several places, one after the other or not.
    std::vector<host::RowMove> moves;
    for (std::size_t to_row = 0; to_row < 2 * rows; ++to_row) {
      if (random_.chance(0.1)) continue;
      bool const again = !moves.empty() && random_.chance(0.4);
      auto const row = again ? moves.back().from : static_cast<std::int64_t>(below(rows));
      moves.push_back({row, static_cast<std::int64_t>(to_row)});
    }
    host::move_rows(expected.data() + kMargin + to_offset, source.data() + from_offset, row_bytes, moves,
                    host::Stores::cached);
    engine().submit(Lane::down, MoveRowsOp{to + kMargin + to_offset, from + from_offset, row_bytes, moves.data(),
                                           moves.size(), host::Stores::cached});
    finish(engine());
    ASSERT_EQ(bench_.read(to, expected.size()), expected)
        << rows << " rows of " << row_bytes << " bytes, offsets " << from_offset << " and " << to_offset;
  }

  struct SumCase {
    host::RowSum types;
    std::size_t columns;
    std::size_t rows;
    std::size_t most_terms;
    bool has_bias;
    bool is_aligned;
  };

  void check_sum(SumCase const& c) {
    bench_.reuse();
    auto const in_bytes = size_of(c.types.in);
    auto const out_bytes = size_of(c.types.out);
    auto const gap = [&](std::size_t element) { return c.is_aligned ? 0 : below(5) * element; };
    struct Source {
      Bytes host;
      std::size_t offset;
      std::size_t stride;
    };
    std::vector<Source> sources;
    std::vector<RowBase> bases;
    constexpr std::size_t kSourceRows = 12;
    for (int i = 0; i < 3; ++i) {
      // Elements lie at multiples of their size, as CUDA asks; rows need not lie at multiples of 16.
      auto const width = c.columns * in_bytes;
      Source source{{}, gap(in_bytes), (c.is_aligned ? (width + 15) / 16 * 16 : width) + gap(in_bytes)};
      source.host.resize(source.offset + kSourceRows * source.stride + 16);
      for (std::size_t row = 0; row < kSourceRows; ++row) {
        fill_row(c.types.in, source.host.data() + source.offset + row * source.stride, c.columns);
      }
      bases.push_back({placed(source.host) + source.offset, source.stride});
      sources.push_back(std::move(source));
    }
    std::vector<RowTerm> terms;
    std::vector<std::uint32_t> first{0};
    for (std::size_t row = 0; row < c.rows; ++row) {
      for (auto count = below(c.most_terms + 1); count > 0; --count) {
        terms.push_back({static_cast<std::uint32_t>(below(3)), static_cast<std::uint32_t>(below(kSourceRows)),
                         random_value(), static_cast<std::uint32_t>(below(2))});
      }
      first.push_back(static_cast<std::uint32_t>(terms.size()));
    }
    auto const stride =
        (c.is_aligned ? (c.columns * out_bytes + 15) / 16 * 16 : c.columns * out_bytes) + gap(out_bytes);
    Bytes bias(c.rows * stride + 16);
    for (std::size_t row = 0; row < c.rows; ++row) fill_row(c.types.out, bias.data() + row * stride, c.columns);
    Bytes expected(c.rows * stride + kMargin, std::byte{0xA5});
    auto* const out = placed(expected);
    auto* const device_bias = c.has_bias ? placed(bias) : nullptr;

    for (std::size_t row = 0; row < c.rows; ++row) {
      std::vector<host::Term> addends;
      for (auto index = first[row]; index < first[row + 1]; ++index) {
        auto const& source = sources[terms[index].base];
        addends.push_back({source.host.data() + source.offset + terms[index].row * source.stride, terms[index].weight,
                           terms[index].closes_group});
      }
      host::sum_row(c.types, addends, c.has_bias ? bias.data() + row * stride : nullptr, expected.data() + row * stride,
                    c.columns);
    }
    engine().submit(Lane::down, SumRowsOp{c.types, bases.data(), terms.data(), first.data(), c.rows, c.columns, out,
                                          stride, device_bias});
    finish(engine());
    auto const got = bench_.read(out, expected.size());
    auto const differs = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    ASSERT_EQ(got, expected) << name_of(c.types.in) << " -> "
                             << (c.types.rounds_inner ? name_of(c.types.inner) : "one group") << " -> "
                             << name_of(c.types.out) << (c.types.weighted ? ", weighted" : "")
                             << (c.has_bias ? ", bias" : "") << (c.is_aligned ? ", aligned, " : ", misaligned, ")
                             << c.columns << " columns; first at byte " << differs << " of a row stride of " << stride;
  }

  CudaBench bench_;
  Random random_;
  Watchdog watchdog_{std::chrono::minutes(9)};  // a memory checker makes it slow
};

TEST_F(CudaKernels, MovesRowsOfEachSize) {
  for (std::size_t row_bytes = 1; row_bytes <= 300; ++row_bytes) {
    check_moves(row_bytes, 0, 0);
    check_moves(row_bytes, below(17), below(17));
  }
}

TEST_F(CudaKernels, MovesLongRows) {
  for (std::size_t const row_bytes : {1024UL, 4096UL, 4104UL, 14336UL, 14337UL, 100000UL}) {
    for (std::size_t const offset : {0UL, 1UL, 2UL, 4UL, 8UL}) check_moves(row_bytes, offset, offset);
  }
}

TEST_F(CudaKernels, MovesTheSameRowToManyPlaces) {
  // More than a block keeps at hand; the index of the last ones is read from afar.
  for (std::size_t const row_bytes : {4UL, 64UL, 2048UL}) {
    bench_.reuse();
    std::size_t const places = 1000;
    auto const source = random_bytes(2 * row_bytes);
    Bytes expected(places * row_bytes);
    std::vector<host::RowMove> moves;
    for (std::size_t i = 0; i < places; ++i) moves.push_back({i < 900 ? 1 : 0, static_cast<std::int64_t>(i)});
    host::move_rows(expected.data(), source.data(), row_bytes, moves, host::Stores::cached);
    auto* const from = placed(source);
    auto* const to = placed(Bytes(expected.size()));
    engine().submit(Lane::up, MoveRowsOp{to, from, row_bytes, moves.data(), places, host::Stores::streaming});
    finish(engine());
    ASSERT_EQ(bench_.read(to, expected.size()), expected) << row_bytes << " bytes a row";
  }
}

TEST_F(CudaKernels, SumsRowsOfAllTypes) {
  for (Dtype const in : kSummable) {
    for (Dtype const out : kSummable) {
      for (int inner = 0; inner < 4; ++inner) {
        for (bool const weighted : {false, true}) {
          host::RowSum const types{in, inner < 3 ? kSummable[static_cast<std::size_t>(inner)] : f32, out, weighted,
                                   inner < 3};
          for (std::size_t const columns : {1UL, 2UL, 3UL, 7UL, 8UL, 16UL, 17UL, 64UL, 129UL, 2048UL}) {
            bool const has_bias = random_.chance(0.5);
            check_sum({types, columns, columns > 1000 ? 6UL : 20UL, 9, has_bias, columns % 8 == 0});
            if (HasFatalFailure()) return;
          }
          check_sum({types, 96, 20, 9, true, false});
          check_sum({types, 96, 20, 9, false, true});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaKernels, SumsManyTerms) {
  // More than a block keeps at hand, in one row and in many.
  check_sum({{bf16, bf16, bf16, true, true}, 256, 3, 3000, false, true});
  check_sum({{f32, f32, f32, true, false}, 67, 200, 70, true, false});
  check_sum({{f16, f16, f32, false, true}, 8, 5000, 8, false, true});
}

TEST_F(CudaKernels, KeepsTheOrderOfTerms) {
  // 2^24 + 1 - 2^24 is 0 in this order; fused or reordered it is not.
  float const values[] = {16777216.0F, 1.0F, -16777216.0F};
  Bytes raw(sizeof values);
  std::memcpy(raw.data(), values, sizeof values);
  std::vector<RowBase> const bases{{placed(raw), sizeof(float)}};
  std::vector<RowTerm> const terms{{0, 0, 1.0F, 0}, {0, 1, 1.0F, 0}, {0, 2, 1.0F, 1}};
  std::vector<std::uint32_t> const first{0, 3};
  auto* const out = placed(Bytes(4, std::byte{0xFF}));
  engine().submit(
      Lane::down,
      SumRowsOp{{f32, f32, f32, true, false}, bases.data(), terms.data(), first.data(), 1, 1, out, 4, nullptr});
  finish(engine());
  EXPECT_EQ(bench_.read(out, 4), Bytes(4));
}

TEST_F(CudaKernels, ConvertsEveryHalf) {
  // All 65536 values of each half type into each type, and f32 of all exponents into the halves.
  for (Dtype const in : kSummable) {
    std::size_t const columns = 1 << 16;
    Bytes row(columns * size_of(in));
    for (std::size_t i = 0; i < columns; ++i) {
      auto bits = static_cast<std::uint32_t>(i);
      if (in == f32) bits = bits << 16U | (static_cast<std::uint32_t>(random_.word()) & 0xffffU);
      std::memcpy(row.data() + i * size_of(in), &bits, size_of(in));
    }
    for (Dtype const out : kSummable) {
      bench_.reuse();
      Bytes expected(columns * size_of(out));
      host::Term const term{row.data(), 1.0F, 1};
      host::RowSum const types{in, f32, out, false, false};
      host::sum_row(types, {&term, 1}, nullptr, expected.data(), columns);
      RowBase const base{placed(row), 0};
      RowTerm const first_term{0, 0, 1.0F, 1};
      std::uint32_t const first[] = {0, 1};
      auto* const to = placed(Bytes(expected.size()));
      engine().submit(Lane::down,
                      SumRowsOp{types, &base, &first_term, first, 1, columns, to, expected.size(), nullptr});
      finish(engine());
      EXPECT_TRUE(bench_.read(to, expected.size()) == expected) << name_of(in) << " to " << name_of(out);
    }
  }
}

}  // namespace
}  // namespace davit::test
