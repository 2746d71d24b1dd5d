// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "transports/host/kernels_table.hpp"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace davit::host {
namespace {

constexpr std::array summable{f32, f16, bf16};
constexpr std::byte guard{0xa5};
constexpr std::size_t margin = 128;  // of guard bytes on either side

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t bound) {
  return std::uniform_int_distribution<std::size_t>{0, bound - 1}(random);
}

// Bytes at a chosen distance from a cache line, between guard bytes.
class Guarded {
 public:
  Guarded(std::size_t size, std::size_t misalignment) : memory_(size + 2 * margin + 128, guard), size_{size} {
    auto const address = reinterpret_cast<std::uintptr_t>(memory_.data() + margin);
    begin_ = margin + (64 - address % 64) % 64 + misalignment % 64;
    memory_.resize(begin_ + size + margin, guard);  // shrinks: no reallocation
  }

  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] std::byte const* data() const { return memory_.data() + begin_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool is_intact() const {
    auto const is_guard = [](std::byte byte) { return byte == guard; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(begin_), is_guard) &&
           std::all_of(memory_.end() - static_cast<std::ptrdiff_t>(margin), memory_.end(), is_guard);
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t size_;
  std::size_t begin_;
};

// Mostly values that add up to something, with enough of the rest: denormals, near overflow, halfway, infinite, NaN.
float random_value(Random& random) {
  auto const bits = static_cast<std::uint32_t>(random());
  float const moderate = std::ldexp(static_cast<float>(static_cast<std::int32_t>(bits)), -28);
  switch (below(random, 24)) {
    case 0:
      return std::bit_cast<float>(bits);
    case 1:
      return std::bit_cast<float>(bits & 0x807fffffU);  // denormal in f32
    case 2:
      return std::ldexp(moderate, -18);  // denormal in f16
    case 3:
      return std::ldexp(moderate, bits % 2 != 0 ? 13 : 124);  // overflow in f16, in all
    case 4:
      return std::bit_cast<float>((bits & 0xbfff0000U) | 0x00008000U);  // halfway between two bf16
    case 5:
      return bits % 2 != 0 ? 0.0F : -0.0F;
    default:
      return moderate;
  }
}

void fill(Random& random, Dtype dtype, Guarded& row) {
  for (std::size_t at = 0; at < row.size(); at += size_of(dtype)) {
    store_element(dtype, random_value(random), row.data() + at);
    // Half of the few NaNs keep a payload, signalling or not; store_element would have made them all the same.
    if (below(random, 2000) == 0) {
      std::uint32_t const bits = static_cast<std::uint32_t>(random()) | (dtype == f16 ? 0x7c007c00U : 0x7f807f80U);
      std::memcpy(row.data() + at, &bits, size_of(dtype));
    }
  }
}

float rounded(Dtype dtype, float value) {
  std::array<std::byte, 4> element{};
  store_element(dtype, value, element.data());
  return load_element(dtype, element.data());
}

void reference_sum(RowSum const& sum, std::span<Term const> terms, std::byte const* bias, std::byte* out,
                   std::size_t columns) {
  for (std::size_t column = 0; column < columns; ++column) {
    float result = 0;
    float group = 0;
    int sums = 0;  // the first term starts a sum: 0 + -0 would not be -0
    int terms_of_group = 0;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      float const x = load_element(sum.in, terms[t].row + column * size_of(sum.in));
      float const product = sum.weighted ? terms[t].weight * x : x;
      group = terms_of_group++ == 0 ? product : group + product;
      bool const is_last = t + 1 == terms.size();
      if (!is_last && (!sum.rounds_inner || terms[t].closes_group == 0)) continue;
      float const inner = sum.rounds_inner ? rounded(sum.inner, group) : group;
      result = sums++ == 0 ? inner : result + inner;
      terms_of_group = 0;
    }
    if (bias != nullptr) result += load_element(sum.out, bias + column * size_of(sum.out));
    store_element(sum.out, result, out + column * size_of(sum.out));
  }
}

std::string describe(RowSum const& sum, std::size_t terms, bool has_bias, std::size_t columns) {
  return std::string{name_of(sum.in)} + " -> " + (sum.rounds_inner ? name_of(sum.inner) : "one group") + " -> " +
         name_of(sum.out) + (sum.weighted ? ", weighted, " : ", ") + std::to_string(terms) + " terms, " +
         (has_bias ? "bias, " : "") + std::to_string(columns) + " columns";
}

class Kernels : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    kernels_ = table(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "not on this machine";
  }

  // Each column of the result depends on that column alone, so one reference row serves every number of columns.
  void check_sum(Random& random, RowSum const& sum, std::size_t count, bool has_bias) const {
    constexpr std::size_t widest = 2048;
    std::vector<Guarded> rows;
    std::vector<Term> terms;
    for (std::size_t t = 0; t < count; ++t) {
      rows.emplace_back(widest * size_of(sum.in), random());
      fill(random, sum.in, rows.back());
    }
    for (auto const& row : rows) {
      terms.push_back({row.data(), random_value(random), static_cast<std::uint32_t>(random() % 2)});
    }
    Guarded bias{widest * size_of(sum.out), random()};
    fill(random, sum.out, bias);
    std::byte const* const bias_row = has_bias ? bias.data() : nullptr;
    std::vector<std::byte> expected(widest * size_of(sum.out));
    reference_sum(sum, terms, bias_row, expected.data(), widest);

    for (std::size_t columns = 0; columns <= 131; ++columns) {
      std::size_t const used = columns == 131 ? widest : columns;
      Guarded out{used * size_of(sum.out), random()};
      kernels_->sum_row(sum, terms.data(), terms.size(), bias_row, out.data(), used);
      ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0) << describe(sum, count, has_bias, used);
      ASSERT_TRUE(out.is_intact()) << describe(sum, count, has_bias, used);
    }
  }

  // One column of f32.
  [[nodiscard]] std::uint32_t sum_one(RowSum const& sum, std::vector<float> const& values,
                                      std::vector<float> const& weights = {},
                                      std::vector<std::uint32_t> const& closes = {}) const {
    std::vector<Term> terms;
    for (std::size_t t = 0; t < values.size(); ++t) {
      terms.push_back({reinterpret_cast<std::byte const*>(&values[t]), weights.empty() ? 1.0F : weights[t],
                       closes.empty() ? 0U : closes[t]});
    }
    std::uint32_t bits = 0;
    kernels_->sum_row(sum, terms.data(), terms.size(), nullptr, reinterpret_cast<std::byte*>(&bits), 1);
    return bits;
  }

  void check_conversion(Dtype from, Dtype to, std::vector<std::byte> const& row) const {
    std::size_t const columns = row.size() / size_of(from);
    std::vector<std::byte> expected(columns * size_of(to));
    std::vector<std::byte> out(expected.size());
    Term const term{row.data(), 1.0F, 1};
    reference_sum({from, f32, to, false, false}, {&term, 1}, nullptr, expected.data(), columns);
    kernels_->sum_row({from, f32, to, false, false}, &term, 1, nullptr, out.data(), columns);
    EXPECT_TRUE(out == expected) << name_of(from) << " to " << name_of(to);
    kernels_->sum_row({from, to, to, false, true}, &term, 1, nullptr, out.data(), columns);  // rounding twice: the same
    EXPECT_TRUE(out == expected) << name_of(from) << " to inner " << name_of(to);
  }

  KernelTable const* kernels_ = nullptr;
};

std::string variant_name(testing::TestParamInfo<Variant> const& test) {
  char const* const names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<std::size_t>(test.param)];
}

template <class Value>
std::vector<std::byte> bytes_of(std::vector<Value> const& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(Value));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

float load_half(Dtype dtype, std::uint16_t half) {
  return load_element(dtype, reinterpret_cast<std::byte const*>(&half));
}

std::uint16_t store_half(Dtype dtype, float value) {
  std::uint16_t half = 0;
  store_element(dtype, value, reinterpret_cast<std::byte*>(&half));
  return half;
}

// Value of a 16-bit float with `mantissa` bits of mantissa, from first principles; the infinity's bits give the power
// of two that would follow the largest one.
double value_of(std::uint16_t half, int mantissa) {
  int const bias = (1 << (14 - mantissa)) - 1;
  int const exponent = (half & 0x7fff) >> mantissa;
  int const fraction = half & ((1 << mantissa) - 1);
  double const magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                         : std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// Every value between neighbours a and b rounds to the nearer one, and the one halfway to the even one. As rounding is
// monotonic, testing the halfway points and the f32 values on either side of them covers all f32 values.
std::vector<float> around_halfway(int mantissa) {
  std::vector<float> values;
  std::uint16_t const infinity = mantissa == 10 ? 0x7c00 : 0x7f80;
  for (std::uint16_t half = 0; half < infinity; ++half) {
    double const middle = (value_of(half, mantissa) + value_of(static_cast<std::uint16_t>(half + 1), mantissa)) / 2;
    auto const exact = static_cast<float>(middle);
    for (float const value : {std::nextafter(exact, 0.0F), exact, std::nextafter(exact, HUGE_VALF)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  return values;
}

}  // namespace

TEST(KernelElements, LoadEvery16BitValueExactly) {
  for (Dtype const dtype : {f16, bf16}) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      auto const half = static_cast<std::uint16_t>(bits);
      int const mantissa = dtype == f16 ? 10 : 7;
      int const infinity = dtype == f16 ? 0x7c00 : 0x7f80;
      int const magnitude = half & 0x7fff;
      float const loaded = load_half(dtype, half);
      ASSERT_EQ(std::signbit(loaded), half >= 0x8000);
      ASSERT_EQ(std::isnan(loaded), magnitude > infinity);
      ASSERT_EQ(std::isinf(loaded), magnitude == infinity);
      ASSERT_TRUE(magnitude >= infinity || loaded == value_of(half, mantissa)) << name_of(dtype) << " " << half;
      ASSERT_EQ(store_half(dtype, loaded), magnitude > infinity ? 0x7fff : half);
    }
  }
}

TEST(KernelElements, StoreToNearestEven) {
  for (Dtype const dtype : {f16, bf16}) {
    auto const values = around_halfway(dtype == f16 ? 10 : 7);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const lower = static_cast<std::uint16_t>(i / 6);
      auto const even = static_cast<std::uint16_t>(lower + lower % 2);
      auto const upper = static_cast<std::uint16_t>(lower + 1);
      auto const nearest = std::array{lower, even, upper}[i % 6 / 2];
      ASSERT_EQ(store_half(dtype, values[i]), nearest | (i % 2 != 0 ? 0x8000 : 0)) << name_of(dtype) << values[i];
    }
    ASSERT_EQ(store_half(dtype, HUGE_VALF), dtype == f16 ? 0x7c00 : 0x7f80);
    ASSERT_EQ(store_half(dtype, std::numeric_limits<float>::denorm_min()), 0);
    ASSERT_EQ(store_half(dtype, -std::bit_cast<float>(0x7f800001U)), 0x7fff);  // signalling, its payload cut off
  }
}

TEST_P(Kernels, AddAsTheReferenceDoes) {
  for (std::uint64_t seed = 0; Dtype const in : summable) {
    for (Dtype const out : summable) {
      for (std::size_t shape = 0; shape < 8; ++shape) {
        bool const weighted = shape % 2 != 0;
        bool const rounds_inner = shape >= 2;
        Dtype const inner = rounds_inner ? summable[shape / 2 - 1] : f32;
        for (std::size_t count = 0; count <= 9; ++count) {
          for (bool const has_bias : {false, true}) {
            SCOPED_TRACE("seed " + std::to_string(seed));
            Random random{seed++};
            ASSERT_NO_FATAL_FAILURE(check_sum(random, {in, inner, out, weighted, rounds_inner}, count, has_bias));
          }
        }
      }
    }
  }
}

TEST_P(Kernels, ReadNothingBeyondTheRows) {
  for (Dtype const dtype : summable) {
    for (std::size_t columns = 1; columns <= 130; ++columns) {
      std::vector<std::byte> const row(columns * size_of(dtype));  // its end is the allocation's: for AddressSanitizer
      std::vector<std::byte> out(row.size());
      std::array<Term, 2> const terms{{{row.data(), 1.0F, 1}, {row.data(), 1.0F, 1}}};
      for (bool const rounds_inner : {false, true}) {
        kernels_->sum_row({dtype, dtype, dtype, true, rounds_inner}, terms.data(), 2, row.data(), out.data(), columns);
        EXPECT_EQ(out, row);
      }
    }
  }
}

TEST_P(Kernels, KeepTheOrderOfTerms) {
  float const big = 16777216.0F;  // 2^24: adding 1 to it changes nothing
  RowSum const flat{f32, f32, f32, false, false};
  RowSum const grouped{f32, f32, f32, false, true};
  EXPECT_EQ(sum_one(flat, {big, 1.0F, -big}), std::bit_cast<std::uint32_t>(0.0F));
  EXPECT_EQ(sum_one(flat, {big, -big, 1.0F}), std::bit_cast<std::uint32_t>(1.0F));
  EXPECT_EQ(sum_one(flat, {1.0F, big, -big}), std::bit_cast<std::uint32_t>(0.0F));
  EXPECT_EQ(sum_one(grouped, {big, 1.0F, -big}, {}, {0, 1, 0}), std::bit_cast<std::uint32_t>(0.0F));
  EXPECT_EQ(sum_one(grouped, {big, 1.0F, -big}, {}, {1, 0, 0}), std::bit_cast<std::uint32_t>(1.0F));
}

TEST_P(Kernels, RoundProductsBeforeAdding) {
  float const x = 1.0F + std::ldexp(1.0F, -12);  // x * x = 1 + 2^-11 + 2^-24; the last term is lost unless fused
  EXPECT_EQ(sum_one({f32, f32, f32, true, false}, {-1.0F - std::ldexp(1.0F, -11), x}, {1.0F, x}), 0U);
}

TEST_P(Kernels, KeepNegativeZero) {
  EXPECT_EQ(sum_one({f32, f32, f32, false, false}, {-0.0F}), 0x80000000U);
  EXPECT_EQ(sum_one({f32, f16, f32, false, true}, {-0.0F, -0.0F}, {}, {1, 1}), 0x80000000U);
  EXPECT_EQ(sum_one({f32, f32, f32, false, false}, {}), 0U);
}

TEST_P(Kernels, ConvertAllValues) {
  std::vector<std::uint16_t> halves(0x10000);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  for (Dtype const from : {f16, bf16}) {
    for (Dtype const to : summable) check_conversion(from, to, bytes_of(halves));
  }
  Random random{1};
  std::vector<std::uint32_t> words(1 << 20);
  std::generate(words.begin(), words.end(), [&] { return static_cast<std::uint32_t>(random()); });
  for (Dtype const to : {f16, bf16}) {
    check_conversion(f32, to, bytes_of(words));
    check_conversion(f32, to, bytes_of(around_halfway(to == f16 ? 10 : 7)));
  }
}

TEST_P(Kernels, MoveRowsOfEverySize) {
  Random random{1};
  std::vector<std::size_t> sizes(301);
  std::iota(sizes.begin(), sizes.end(), std::size_t{0});
  sizes.insert(sizes.end(), {511, 512, 1000, 2047, 2048, 4096, 4097, 14336});
  for (std::size_t const row_bytes : sizes) {
    for (Stores const stores : {Stores::cached, Stores::streaming}) {
      for (std::size_t const misalignment : {std::size_t{0}, below(random, 64), below(random, 64)}) {
        constexpr std::int64_t rows = 7;
        Guarded from{static_cast<std::size_t>(rows) * row_bytes, random()};
        Guarded to{from.size(), misalignment};
        std::generate_n(from.data(), from.size(), [&] { return static_cast<std::byte>(random()); });
        std::array<RowMove, 4> const moves{{{6, 2}, {0, 6}, {3, 0}, {0, 5}}};  // 1, 3 and 4 stay
        std::vector<std::byte> expected(to.size(), guard);
        for (RowMove const& move : moves) {
          std::copy_n(from.data() + static_cast<std::size_t>(move.from) * row_bytes, row_bytes,
                      expected.data() + static_cast<std::size_t>(move.to) * row_bytes);
        }
        kernels_->move_rows(to.data(), from.data(), row_bytes, moves.data(), moves.size(), stores);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), to.data())) << row_bytes << " + " << misalignment;
        ASSERT_TRUE(to.is_intact()) << row_bytes << " + " << misalignment;
        kernels_->move_rows(to.data(), from.data(), row_bytes, nullptr, 0, stores);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Kernels, testing::Values(Variant::baseline, Variant::avx2, Variant::avx512), variant_name);

TEST(KernelChoice, TakesTheWidest) {
  KernelTable const* widest = nullptr;
  for (Variant const variant : {Variant::baseline, Variant::avx2, Variant::avx512}) {
    if (table(variant) != nullptr) widest = table(variant);
  }
  ASSERT_NE(widest, nullptr);
  EXPECT_STREQ(kernel_variant(), widest->name);
}

TEST(KernelChoice, IgnoresTheThreadsFloatingPointMode) {
#ifdef __SSE2__
  std::array<float, 2> const values{std::bit_cast<float>(3U), 1.0F};
  std::array<Term, 2> const terms{{{reinterpret_cast<std::byte const*>(&values[0]), 1.0F, 0},
                                   {reinterpret_cast<std::byte const*>(&values[1]), std::ldexp(1.0F, -149), 0}}};
  std::uint32_t bits = 0;
  unsigned const saved = _mm_getcsr();
  unsigned const flushing_downwards = 0xbfc0;  // flush to zero, denormals are zero, round down
  _mm_setcsr(flushing_downwards);
  sum_row({f32, f32, f32, true, false}, terms, nullptr, reinterpret_cast<std::byte*>(&bits), 1);
  unsigned const after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(bits, 4U);
  EXPECT_EQ(after, flushing_downwards);
#else
  GTEST_SKIP() << "the mode is taken care of on x86 only";
#endif
}

}  // namespace davit::host
