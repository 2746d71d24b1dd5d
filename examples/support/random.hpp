// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bits that follow from numbers: the same on every rank, without any state.
#pragma once

#include <cstdint>

namespace support {

/// splitmix64's mixer: unlike inputs give unrelated outputs.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

/// A number in [-1, 1) from the upper bits.
[[nodiscard]] constexpr float symmetric(std::uint64_t bits) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 40U)) * 0x1p-23F - 1.0F;
}

}  // namespace support
