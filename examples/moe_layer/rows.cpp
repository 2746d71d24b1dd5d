// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/rows.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace moe {
namespace {

using Half = std::uint16_t;

float from_bf16(Half half) { return std::bit_cast<float>(std::uint32_t{half} << 16U); }

Half to_bf16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Half>(bits >> 16U | 0x40U);  // a NaN stays one
  return static_cast<Half>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

float from_f16(Half half) {
  auto const sign = std::uint32_t{half & 0x8000U} << 16U;
  auto const magnitude = std::uint32_t{half & 0x7fffU};
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13U);
  // As an f32 the bits are 2^112 too small, denormal or not.
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13U) * 0x1p112F) | sign);
}

Half to_f16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = static_cast<Half>(bits >> 16U & 0x8000U);
  auto const magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U;
  } else if (magnitude >= 0x47800000U) {  // 65536 and more
    half = 0x7c00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 brings the last bit to its place, and rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  } else {
    half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13U & 1U)) >> 13U;  // may carry to infinity
  }
  return static_cast<Half>(half | sign);
}

template <class Convert>
void widen_halves(std::byte const* from, std::span<float> to, Convert convert) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Half half = 0;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    to[i] = convert(half);
  }
}

template <class Convert>
void narrow_halves(std::span<float const> from, std::byte* to, Convert convert) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    Half const half = convert(from[i]);
    std::memcpy(to + i * sizeof half, &half, sizeof half);
  }
}

}  // namespace

void widen(davit::Dtype dtype, std::byte const* from, std::span<float> to) {
  if (dtype == davit::f32) {
    std::memcpy(to.data(), from, to.size_bytes());
  } else if (dtype == davit::bf16) {
    widen_halves(from, to, from_bf16);
  } else {
    widen_halves(from, to, from_f16);
  }
}

void narrow(davit::Dtype dtype, std::span<float const> from, std::byte* to) {
  if (dtype == davit::f32) {
    std::memcpy(to, from.data(), from.size_bytes());
  } else if (dtype == davit::bf16) {
    narrow_halves(from, to, to_bf16);
  } else {
    narrow_halves(from, to, to_f16);
  }
}

void round_to(davit::Dtype dtype, std::span<float> row) {
  if (dtype == davit::f32) return;
  for (auto& value : row) value = dtype == davit::bf16 ? from_bf16(to_bf16(value)) : from_f16(to_f16(value));
}

double round_off(davit::Dtype dtype) noexcept {
  if (dtype == davit::f32) return 0x1p-24;
  return dtype == davit::bf16 ? 0x1p-8 : 0x1p-11;
}

double least_normal(davit::Dtype dtype) noexcept { return dtype == davit::f16 ? 0x1p-14 : 0x1p-126; }

}  // namespace moe
