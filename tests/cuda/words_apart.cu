// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/patterns.hpp"
#include "tests/cuda/words_apart.hpp"
#include "transports/cuda/check.hpp"
#include "transports/cuda/words_lines.cuh"

namespace davit::test {
namespace {

using cuda::kWholeWarp;
using cuda::kWordsHeld;
using cuda::kWordsLanes;
using cuda::WordsForm;

constexpr long long kLateCycles = 40000;
constexpr unsigned long long kGiveUpNanoseconds = 2'000'000'000;

__device__ unsigned long long nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ bool is_late(Apart apart, unsigned lane) {
  switch (apart) {
    case Apart::those_with_flags:
      return lane % 4 == 3;
    case Apart::those_without:
      return lane % 4 != 3;
    case Apart::every_other:
      return lane % 2 == 0;
    default:
      return false;
  }
}

__device__ void wait_a_little() {
  long long const begin = clock64();
  while (clock64() - begin < kLateCycles) {
  }
}

__device__ cuda::Quad quad_of(WordsForm form, std::uint32_t round, unsigned lane, unsigned held) {
  std::uint32_t const at = cuda::words_vector(form, lane, held) * 4;
  return {word_of(round, at), word_of(round, at + 1), word_of(round, at + 2), word_of(round, at + 3)};
}

// Not inlined: each branch has a call of its own, so lanes that are apart stay so.
template <WordsForm form>
__device__ __noinline__ void write_one(std::byte* at, unsigned lane, std::uint32_t round) {
  cuda::WordsHeld held;
#pragma unroll
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    held[i] = cuda::words_has_vector(form, lane, i) ? quad_of(form, round, lane, i) : cuda::Quad{};
  }
  cuda::write_batch<form>(at, cuda::words_carries_flag(form, lane), cuda::words_flag(form, round), held);
}

/// @returns vectors that are wrong, -1 if nothing has come.
template <WordsForm form>
__device__ __noinline__ int read_one(std::byte const* at, unsigned lane, std::uint32_t round) {
  cuda::WordsHeld held;
  if (!cuda::read_batch<form>(at, cuda::words_carries_flag(form, lane), cuda::words_flag(form, round), held)) return -1;
  int wrong = 0;
#pragma unroll
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    wrong += cuda::words_has_vector(form, lane, i) && !(held[i] == quad_of(form, round, lane, i)) ? 1 : 0;
  }
  return wrong;
}

template <WordsForm form>
__global__ void move_apart(std::byte* region, std::uint32_t* credit, std::uint32_t rounds, Apart writer, Apart reader,
                           ApartVerdict* verdict) {
  unsigned const lane = threadIdx.x;
  auto* const at = region + lane * 16;
  auto const begin = nanoseconds();
  auto const is_over = [&] { return __any_sync(kWholeWarp, nanoseconds() - begin > kGiveUpNanoseconds) != 0; };
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (blockIdx.x == 0) {
      while (__all_sync(kWholeWarp, cuda::load_word(credit) == round - 1) == 0) {
        if (is_over()) return;
      }
      if (is_late(writer, lane)) {
        wait_a_little();
        write_one<form>(at, lane, round);
      } else {
        write_one<form>(at, lane, round);
      }
      continue;
    }
    int wrong = -1;
    do {
      if (is_over()) return;
      if (is_late(reader, lane)) {
        wait_a_little();
        wrong = read_one<form>(at, lane, round);
      } else {
        wrong = read_one<form>(at, lane, round);
      }
    } while (__all_sync(kWholeWarp, wrong >= 0) == 0);
    if (wrong > 0) atomicAdd(&verdict->wrong, static_cast<std::uint32_t>(wrong));
    if (lane == 0) {
      ++verdict->received;
      cuda::store_word(credit, round);
    }
  }
}

}  // namespace

void launch_apart(cudaStream_t stream, WordsForm form, std::byte* region, std::uint32_t* credit, std::uint32_t rounds,
                  Apart writer, Apart reader, ApartVerdict* verdict) {
  auto const launch = [&](auto* kernel) {
    kernel<<<2, kWordsLanes, 0, stream>>>(region, credit, rounds, writer, reader, verdict);
  };
  switch (form) {
    case WordsForm::line62:
      launch(move_apart<WordsForm::line62>);
      break;
    case WordsForm::line60:
      launch(move_apart<WordsForm::line60>);
      break;
    case WordsForm::unit12:
      launch(move_apart<WordsForm::unit12>);
      break;
    default:
      launch(move_apart<WordsForm::unit4>);
  }
  cuda::check(cudaGetLastError(), "launch of move_apart");
}

}  // namespace davit::test
