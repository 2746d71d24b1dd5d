// SPDX-License-Identifier: Apache-2.0
/// @file
/// Row kernels of the host engine: the loops that touch every payload byte. Each exists for the baseline, for AVX2 +
/// F16C and for AVX-512; the widest that the machine has is chosen once, at first use. All give the same bits: no fused
/// multiply-add, no reassociation, conversions round to nearest even and keep denormals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "davit/dtype.hpp"

namespace davit::host {

/// One row move: row `from` of the source array to row `to` of the destination array.
struct RowMove {
  std::int64_t from;
  std::int64_t to;
};

/// How stores of moved rows reach memory.
enum class Stores {
  cached,    ///< ordinary stores: the rows are read again soon (slots)
  streaming  ///< past the caches where that is faster: the rows are many and read later (receive buffers)
};

/// Copies rows of `row_bytes` (any number, any alignment) between arrays of packed rows. Arrays must not overlap.
void move_rows(std::byte* to, std::byte const* from, std::size_t row_bytes, std::span<RowMove const> moves,
               Stores stores);

/// One addend of a row sum.
struct Term {
  std::byte const* row;        ///< `columns` elements of RowSum::in; need not be aligned
  float weight;                ///< read only if RowSum::weighted
  std::uint32_t closes_group;  ///< 1 on the last term of each inner group; the last term of a row always closes
};

/// Types and shape of a row sum: out = round(sum over groups of round_inner(sum over the group's terms of w * row)).
struct RowSum {
  Dtype in;           ///< of the terms: f32, f16 or bf16
  Dtype inner;        ///< inner sums are rounded to it if `rounds_inner`: f32, f16 or bf16
  Dtype out;          ///< of the result and the bias: f32, f16 or bf16
  bool weighted;      ///< multiply each term by its weight, in f32, before it is added
  bool rounds_inner;  ///< otherwise there is one group only, and groups are not looked at
};

/// Adds `terms` in their order in f32: the first term starts a group's sum, the first group starts the total; no term
/// at all gives +0.0. Then adds `bias` (of `sum.out`, may be null) in f32 and rounds once to `sum.out`.
/// @param out `columns` elements, not overlapping any input.
void sum_row(RowSum const& sum, std::span<Term const> terms, std::byte const* bias, std::byte* out,
             std::size_t columns);

/// Name of the chosen variant: "avx512", "avx2" or "baseline".
[[nodiscard]] char const* kernel_variant() noexcept;

/// Converts one element; for tests and references, not for loops.
[[nodiscard]] float load_element(Dtype dtype, std::byte const* element) noexcept;
/// Rounds one element to nearest even and stores it.
void store_element(Dtype dtype, float value, std::byte* element) noexcept;

}  // namespace davit::host
