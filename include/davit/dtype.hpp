// SPDX-License-Identifier: Apache-2.0
/// @file
/// Element types. davit moves bytes; only reductions (combine, reduce_scatterv) look inside, and they take f32, f16 and
/// bf16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace davit {

/// Type of one element of a buffer. The values are stable: they appear in messages between ranks and in the C ABI.
enum class Dtype : std::uint8_t { u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, e4m3, e5m2 };
using enum Dtype;  // davit::f32, davit::bf16, ...

/// Bytes of one element; 0 for a value that names no type.
[[nodiscard]] constexpr std::size_t size_of(Dtype dtype) noexcept {
  switch (dtype) {
    case u8:
    case i8:
    case e4m3:
    case e5m2:
      return 1;
    case u16:
    case i16:
    case f16:
    case bf16:
      return 2;
    case u32:
    case i32:
    case f32:
      return 4;
    case u64:
    case i64:
    case f64:
      return 8;
  }
  return 0;
}

/// Name as used in messages and by the programs' options: "f32", "bf16", ...
[[nodiscard]] constexpr char const* name_of(Dtype dtype) noexcept {
  constexpr char const* names[] = {"u8",  "i8",  "u16",  "i16", "u32", "i32",  "u64",
                                   "i64", "f16", "bf16", "f32", "f64", "e4m3", "e5m2"};
  auto const index = static_cast<std::size_t>(dtype);
  return index < sizeof names / sizeof names[0] ? names[index] : "unknown";
}

/// Whether combine and reduce_scatterv can add elements of this type.
[[nodiscard]] constexpr bool is_summable(Dtype dtype) noexcept { return dtype == f32 || dtype == f16 || dtype == bf16; }

}  // namespace davit
