// SPDX-License-Identifier: Apache-2.0
/// @file
/// How data change, the same by the CPU and by a kernel: constexpr functions, which nvcc takes for both.
#pragma once

#include <cstdint>

#include "examples/support/random.hpp"

namespace perf {

/// Changed places of a block: from its first to its last element, so that a cut or late end shows.
inline constexpr std::int64_t changed_places = 4;

/// Where place `i` of a block of `bytes` begins, its elements `length` bytes long.
[[nodiscard]] constexpr std::int64_t changed_at(std::int64_t bytes, std::int64_t length, std::int64_t i) noexcept {
  return i + 1 == changed_places ? bytes - length : (bytes / length - 1) * i / (changed_places - 1) * length;
}
/// What goes there.
[[nodiscard]] constexpr std::uint64_t changed_bits(std::uint64_t key, std::int64_t block, std::int64_t i) noexcept {
  return support::mix(key + static_cast<std::uint64_t>(block * changed_places + i));
}

/// From -largest to largest.
[[nodiscard]] constexpr std::int64_t whole_number(std::uint64_t bits, std::int64_t largest) noexcept {
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * largest + 1)) - largest;
}

/// Of every how many rows one changes.
inline constexpr std::int64_t changed_row_step = 16;

[[nodiscard]] constexpr std::int64_t changed_column(std::uint64_t round, std::int64_t hidden) noexcept {
  return static_cast<std::int64_t>(support::mix(round) % static_cast<std::uint64_t>(hidden));
}
/// Exact in every dtype: its size is from 1 to 2.
[[nodiscard]] constexpr float changed_value(std::uint64_t seed, std::uint64_t round, std::int64_t row) noexcept {
  auto const bits = support::mix(seed ^ round ^ static_cast<std::uint64_t>(row));
  auto const size = 1 + static_cast<float>(bits % 128) / 128;
  return (bits >> 63U) != 0 ? size : -size;
}

}  // namespace perf
