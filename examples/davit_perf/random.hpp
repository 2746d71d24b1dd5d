// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bits that follow from numbers: the same on every rank and for both sides.
#pragma once

#include <cstdint>

namespace perf {

/// splitmix64's mixer: unlike inputs give unrelated outputs.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

}  // namespace perf
