// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data that say by themselves whether they are right: each 32-bit word follows from a seed and its place. Filled and
/// checked, 16 bytes a unit, by the GPU and by the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#ifdef __CUDACC__
#define DAVIT_TEST_BOTH __host__ __device__
#else
#define DAVIT_TEST_BOTH
#endif

namespace davit::test {

inline constexpr std::size_t kUnitBytes = 16;

DAVIT_TEST_BOTH inline std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16U)) * 0x7feb352dU;
  x = (x ^ (x >> 15U)) * 0x846ca68bU;
  return x ^ (x >> 16U);
}

DAVIT_TEST_BOTH inline std::uint32_t word_of(std::uint32_t seed, std::uint32_t index) {
  return mixed(mixed(seed) + index);
}

/// What rank `rank` sends in a round; another for each.
inline std::uint32_t seed_of(std::uint32_t round, int rank) {
  return round * 64 + static_cast<std::uint32_t>(rank) + 1;
}

/// What checks have found so far.
struct Verdict {
  unsigned long long checked;  ///< units
  unsigned long long bad;
  std::uint32_t seed;  ///< of one bad unit
  std::uint32_t unit;
  std::uint32_t got;  ///< its first wrong word
  std::uint32_t expected;
};

[[nodiscard]] std::string text_of(Verdict const& verdict);

/// On the GPU, in stream order. `bytes` is a multiple of 16, `verdict` lies in device memory.
void fill(cudaStream_t stream, std::byte* to, std::size_t bytes, std::uint32_t seed);
void check(cudaStream_t stream, std::byte const* data, std::size_t bytes, std::uint32_t seed, Verdict* verdict);

/// On the CPU.
void fill(std::byte* to, std::size_t bytes, std::uint32_t seed);
void check(std::byte const* data, std::size_t bytes, std::uint32_t seed, Verdict& verdict);

/// Keeps a stream busy.
void spin(cudaStream_t stream, std::chrono::microseconds time);

/// A kernel that nothing else launches, so that its first launch loads it. Sets a word to 1.
void launch_for_the_first_time(cudaStream_t stream, std::uint32_t* word);

}  // namespace davit::test
