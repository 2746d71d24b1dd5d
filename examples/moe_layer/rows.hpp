// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows as they travel (bf16, f16, f32), and as one calculates with them (f32).
#pragma once

#include <cstddef>
#include <span>

#include "davit/dtype.hpp"

namespace moe {

/// `to.size()` elements at `from`, which are of `dtype`.
void widen(davit::Dtype dtype, std::byte const* from, std::span<float> to);
/// Rounds to nearest even.
void narrow(davit::Dtype dtype, std::span<float const> from, std::byte* to);
/// What narrow and widen make of `row`.
void round_to(davit::Dtype dtype, std::span<float> row);

/// Half the distance between 1 and the next number: the most by which a rounding is off, relatively.
[[nodiscard]] double round_off(davit::Dtype dtype) noexcept;
/// The least number whose neighbours are that close; below it, numbers lie evenly.
[[nodiscard]] double least_normal(davit::Dtype dtype) noexcept;

}  // namespace moe
