// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "tests/cuda/patterns.hpp"
#include "transports/cuda/check.hpp"

namespace davit::test {
namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t units) {
  return static_cast<unsigned>(std::clamp<std::size_t>((units + kThreads - 1) / kThreads, 1, 64));
}

__global__ void fill_units(uint4* to, unsigned units, std::uint32_t seed) {
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < units; i += gridDim.x * kThreads) {
    to[i] =
        make_uint4(word_of(seed, 4 * i), word_of(seed, 4 * i + 1), word_of(seed, 4 * i + 2), word_of(seed, 4 * i + 3));
  }
}

__global__ void check_units(uint4 const* data, unsigned units, std::uint32_t seed, Verdict* verdict) {
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < units; i += gridDim.x * kThreads) {
    uint4 const unit = __ldcv(data + i);
    unsigned const got[] = {unit.x, unit.y, unit.z, unit.w};
    for (unsigned k = 0; k < 4; ++k) {
      unsigned const expected = word_of(seed, 4 * i + k);
      if (got[k] == expected) continue;
      if (atomicAdd(&verdict->bad, 1ULL) == 0) {
        verdict->seed = seed;
        verdict->unit = i;
        verdict->got = got[k];
        verdict->expected = expected;
      }
      break;
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&verdict->checked, static_cast<unsigned long long>(units));
}

__global__ void spin_for(unsigned long long nanoseconds) {
  unsigned long long start = 0;
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

__global__ void set_word(std::uint32_t* word) { *word = 1; }

}  // namespace

std::string text_of(Verdict const& verdict) {
  std::string text = std::to_string(verdict.bad) + " of " + std::to_string(verdict.checked) + " units of 16 bytes bad";
  if (verdict.bad == 0) return text;
  return text + ", one of them unit " + std::to_string(verdict.unit) + " of seed " + std::to_string(verdict.seed) +
         ": got " + std::to_string(verdict.got) + ", expected " + std::to_string(verdict.expected);
}

void fill(cudaStream_t stream, std::byte* to, std::size_t bytes, std::uint32_t seed) {
  auto const units = bytes / kUnitBytes;
  fill_units<<<blocks_for(units), kThreads, 0, stream>>>(reinterpret_cast<uint4*>(to), static_cast<unsigned>(units),
                                                         seed);
  cuda::check(cudaGetLastError(), "launch of fill_units");
}

void check(cudaStream_t stream, std::byte const* data, std::size_t bytes, std::uint32_t seed, Verdict* verdict) {
  auto const units = bytes / kUnitBytes;
  check_units<<<blocks_for(units), kThreads, 0, stream>>>(reinterpret_cast<uint4 const*>(data),
                                                          static_cast<unsigned>(units), seed, verdict);
  cuda::check(cudaGetLastError(), "launch of check_units");
}

void fill(std::byte* to, std::size_t bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes / 4; ++i) {
    auto const word = word_of(seed, static_cast<std::uint32_t>(i));
    std::memcpy(to + 4 * i, &word, sizeof word);
  }
}

void check(std::byte const* data, std::size_t bytes, std::uint32_t seed, Verdict& verdict) {
  for (std::uint32_t unit = 0; unit < bytes / kUnitBytes; ++unit) {
    for (std::uint32_t k = 4 * unit; k < 4 * unit + 4; ++k) {
      std::uint32_t got = 0;
      std::memcpy(&got, data + std::size_t{4} * k, sizeof got);
      if (got == word_of(seed, k)) continue;
      if (verdict.bad++ == 0) {
        verdict.seed = seed, verdict.unit = unit, verdict.got = got, verdict.expected = word_of(seed, k);
      }
      break;
    }
  }
  verdict.checked += bytes / kUnitBytes;
}

void spin(cudaStream_t stream, std::chrono::microseconds time) {
  spin_for<<<1, 1, 0, stream>>>(static_cast<unsigned long long>(time.count()) * 1000);
  cuda::check(cudaGetLastError(), "launch of spin_for");
}

void launch_for_the_first_time(cudaStream_t stream, std::uint32_t* word) {
  set_word<<<1, 1, 0, stream>>>(word);
  cuda::check(cudaGetLastError(), "launch of set_word");
}

}  // namespace davit::test
