// SPDX-License-Identifier: Apache-2.0
/// @file
/// Vectors for the row kernels, which are written once over vectors of any width: kernels_sum.hpp and kernels_move.hpp.
/// Each variant's source instantiates them with an `Isa` of its own unnamed namespace. That, or `static`, gives every
/// function internal linkage, so that code compiled with wide instructions can never stand in for another variant's;
/// for the same reason nothing of std:: is called.
///
/// `Isa` derives from Vectors and has
///   static Floats from_f16(Halves);  static Halves to_f16(Floats);  // exact; to nearest even, NaN to NaN of equal
///   sign static void stream(std::byte* aligned, Floats);  static void fence();  // store past the caches; order such
///   stores
#pragma once

#include <cstddef>
#include <cstdint>

namespace davit::host {

template <int bytes>
struct Vectors {
  typedef float Floats __attribute__((vector_size(bytes)));
  typedef std::uint32_t Words __attribute__((vector_size(bytes)));
  typedef std::int32_t Ints __attribute__((vector_size(bytes)));
  typedef std::uint16_t Halves __attribute__((vector_size(bytes / 2)));
};

inline constexpr std::size_t cache_line = 64;

template <class T>
[[gnu::always_inline]] static inline T read(std::byte const* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
[[gnu::always_inline]] static inline void write(std::byte* at, T value) {
  __builtin_memcpy(at, &value, sizeof value);
}

}  // namespace davit::host
