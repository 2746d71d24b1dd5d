// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a warp writes and reads a batch of a region. In lines one lane's flag speaks for four lanes' bytes, so these
/// must go by one instruction.
///
/// Nothing makes a warp run together: lanes may have come apart in any branch or loop before, and __syncwarp lets them
/// meet and go on apart. So each access of a line asks which lanes take part, and where these are not all, data and
/// flags are put in order by a fence. Units with a flag of their own need none of this.
#pragma once

#include "transports/cuda/words_message.cuh"

namespace davit::cuda {

/// Stores if all lanes of the warp do it by this very instruction. @returns whether it has, on all lanes alike.
__device__ __forceinline__ bool store_together(void* at, Quad const& q) {
  std::uint32_t done = 0;
  // No branch lies between the question and the store, so the lanes are the same.
  asm volatile(
      "{\n"
      ".reg .b32 lanes;\n"
      ".reg .pred all;\n"
      "activemask.b32 lanes;\n"
      "setp.eq.b32 all, lanes, 0xffffffff;\n"
      "@all st.volatile.global.v4.u32 [%1], {%2, %3, %4, %5};\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}"
      : "=r"(done)
      : "l"(at), "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
      : "memory");
  return done != 0;
}

/// Loads. @param lanes keeps those that all loads had.
__device__ __forceinline__ Quad load_noting(void const* at, std::uint32_t& lanes) {
  Quad q;
  std::uint32_t here = 0;
  asm volatile(
      "activemask.b32 %4;\n"
      "ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%5];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w), "=r"(here)
      : "l"(at)
      : "memory");
  lanes &= here;
  return q;
}

/// Stores packed lines. @param at the lane's first place
template <WordsForm form>
__device__ __forceinline__ void store_lines(std::byte* at, bool carries, WordsHeld const& held) {
  constexpr unsigned kAll = (1U << words_steps(form)) - 1;
  unsigned done = 0;
#pragma unroll
  for (unsigned step = 0; step < words_steps(form); ++step) {
    done |= (store_together(at + step * kWordsStepBytes, held[words_place(form, step)]) ? 1U : 0U) << step;
  }
  if (done == kAll) return;
    // What is left goes lane by lane: all without a flag, and behind a fence what has one.
#pragma unroll
  for (unsigned step = 0; step < words_steps(form); ++step) {
    if (!carries && (done >> step & 1U) == 0) {
      store_quad(at + step * kWordsStepBytes, held[words_place(form, step)]);
    }
  }
  __threadfence_system();  // these are there
  __syncwarp();
  __threadfence_system();  // and come before what this lane stores
#pragma unroll
  for (unsigned step = 0; step < words_steps(form); ++step) {
    if (carries && (done >> step & 1U) == 0) {
      store_quad(at + step * kWordsStepBytes, held[words_place(form, step)]);
    }
  }
}

/// Loads lines, still packed. @returns whether all flags are there, and then all data are.
template <WordsForm form>
__device__ __forceinline__ bool load_lines(std::byte const* at, bool carries, std::uint32_t flag, WordsHeld& held) {
  std::uint32_t lanes = kWholeWarp;
#pragma unroll
  for (unsigned step = 0; step < words_steps(form); ++step) {
    held[words_place(form, step)] = load_noting(at + step * kWordsStepBytes, lanes);
  }
  if (__all_sync(kWholeWarp, words_is_here<form>(carries, flag, held)) == 0) return false;
  if (__all_sync(kWholeWarp, lanes == kWholeWarp) != 0) return true;
  // Lanes without flags may have loaded before those with flags, and have older bytes. Loads behind the flags do not.
  __threadfence_system();
  __syncwarp();
#pragma unroll
  for (unsigned step = 0; step < words_steps(form); ++step) {
    held[words_place(form, step)] = load_quad(at + step * kWordsStepBytes);
  }
  // The same answer again; it is asked for since no lane may give the bank back before all loads are done.
  return __all_sync(kWholeWarp, words_is_here<form>(carries, flag, held)) != 0;
}

/// Stores a lane's share of a batch. Called by all lanes. @param at the lane's first place. @param held vectors, packed
/// afterwards
template <WordsForm form>
__device__ __forceinline__ void write_batch(std::byte* at, bool carries, std::uint32_t flag, WordsHeld& held) {
  words_pack<form>(carries, flag, held);
  if constexpr (words_has_lines(form)) {
    store_lines<form>(at, carries, held);
  } else {
#pragma unroll
    for (unsigned step = 0; step < words_steps(form); ++step) {
      if constexpr (form == WordsForm::unit4) {
        store_halves(at + step * kWordsStepBytes, held[words_place(form, step)]);
      } else {
        store_quad(at + step * kWordsStepBytes, held[words_place(form, step)]);
      }
    }
  }
}

/// Loads a lane's share of a batch, once. Called by all lanes. @returns false if it has not come yet; the same on all
/// lanes.
template <WordsForm form>
[[nodiscard]] __device__ __forceinline__ bool read_batch(std::byte const* at, bool carries, std::uint32_t flag,
                                                         WordsHeld& held) {
  if constexpr (words_has_lines(form)) {
    if (!load_lines<form>(at, carries, flag, held)) return false;
  } else {
#pragma unroll
    for (unsigned step = 0; step < words_steps(form); ++step) {
      auto const* const from = at + step * kWordsStepBytes;
      held[words_place(form, step)] = form == WordsForm::unit4 ? load_halves(from) : load_quad(from);
    }
    if (__all_sync(kWholeWarp, words_is_here<form>(carries, flag, held)) == 0) return false;
  }
  words_unpack<form>(carries, held);
  return true;
}

}  // namespace davit::cuda
