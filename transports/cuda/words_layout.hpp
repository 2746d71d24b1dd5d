// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where each byte of a message lies in a words region, for host and device: arithmetic only, tested on the CPU.
///
/// A region is two *banks* of `batches` batches. A *batch* is what one warp stores in a few steps of 512 bytes, 16
/// bytes a lane and step. A message is cut into vectors of 16 bytes and these are dealt to lanes; a lane that carries
/// flags gives up the end of each of its stores for the flag, and puts what it took away there into its last store.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define DAVIT_WORDS_BOTH __host__ __device__ inline constexpr
#else
#define DAVIT_WORDS_BOTH inline constexpr
#endif

namespace davit::cuda {

/// What must arrive whole: n bytes of data and m of flag. Both ends of a region use one form, always the same.
enum class WordsForm : std::uint32_t {
  line62,  ///< 64-byte lines, 62 + 2
  line60,  ///< 64-byte lines, 60 + 4
  unit12,  ///< 16-byte units, 12 + 4
  unit4    ///< 8-byte units, 4 + 4: the only one that rests on a promise of the programming model
};

inline constexpr unsigned kWordsLanes = 32;
inline constexpr unsigned kWordsStepBytes = kWordsLanes * 16;
/// Vectors that a lane holds at most.
inline constexpr unsigned kWordsHeld = 8;
/// Where a lane holds the vector that only lanes without flags have, and in memory's form its last step.
inline constexpr unsigned kWordsExtra = 7;

struct alignas(16) Quad {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t z = 0;
  std::uint32_t w = 0;
  friend constexpr bool operator==(Quad const&, Quad const&) = default;
};

using WordsHeld = Quad[kWordsHeld];

DAVIT_WORDS_BOTH bool words_has_lines(WordsForm form) { return form == WordsForm::line62 || form == WordsForm::line60; }

/// Stores of a lane in a batch.
DAVIT_WORDS_BOTH unsigned words_steps(WordsForm form) { return form == WordsForm::line62 ? 8 : 4; }

/// Bytes of a batch in the region.
DAVIT_WORDS_BOTH unsigned words_batch_bytes(WordsForm form) { return words_steps(form) * kWordsStepBytes; }

/// Vectors that every lane has.
DAVIT_WORDS_BOTH unsigned words_regular(WordsForm form) {
  return form == WordsForm::line62 ? 7 : form == WordsForm::unit4 ? 2 : 3;
}

/// Vectors of a batch: 248, 120, 96 or 64.
DAVIT_WORDS_BOTH unsigned words_vectors(WordsForm form) {
  return words_regular(form) * kWordsLanes + (words_has_lines(form) ? kWordsLanes / 4 * 3 : 0);
}

/// Bytes of the message in a batch: 3968, 1920, 1536 or 1024.
DAVIT_WORDS_BOTH unsigned words_batch_data(WordsForm form) { return words_vectors(form) * 16; }

/// Four lanes of one store make a line, and the fourth ends it.
DAVIT_WORDS_BOTH bool words_carries_flag(WordsForm form, unsigned lane) {
  return !words_has_lines(form) || lane % 4 == 3;
}

/// Whether a lane has a vector in place `held`.
DAVIT_WORDS_BOTH bool words_has_vector(WordsForm form, unsigned lane, unsigned held) {
  return held < words_regular(form) || (held == kWordsExtra && !words_carries_flag(form, lane));
}

/// Which of the batch's vectors lies in place `held` of a lane that has one there. Neighbours in the message lie in
/// neighbouring lanes, so that loads and stores of the message coalesce.
DAVIT_WORDS_BOTH unsigned words_vector(WordsForm form, unsigned lane, unsigned held) {
  return held < words_regular(form) ? held * kWordsLanes + lane
                                    : words_regular(form) * kWordsLanes + lane / 4 * 3 + lane % 4;
}

/// Place in which a lane holds what it stores in a step, once packed.
DAVIT_WORDS_BOTH unsigned words_place(WordsForm form, unsigned step) {
  return form != WordsForm::unit4 && step + 1 == words_steps(form) ? kWordsExtra : step;
}

/// The flag of a generation: its number, as far as there is room.
DAVIT_WORDS_BOTH std::uint32_t words_flag(WordsForm form, std::uint32_t generation) {
  return form == WordsForm::line62 ? generation & 0xffffU : generation;
}

/// Whether a generation is written to the end of its bank, however short the message. One in each half of the flags'
/// period, for each bank: so no flag in a bank is ever older than half a period, and none that is left there can be
/// taken for the one that is expected.
DAVIT_WORDS_BOTH bool words_fills_bank(WordsForm form, std::uint32_t generation) {
  return (generation & (form == WordsForm::line62 ? 0x7fffU : 0x7fffffffU)) < 2;
}

/// Batches that hold a message.
DAVIT_WORDS_BOTH std::uint32_t words_batches(WordsForm form, std::uint32_t bytes) {
  return bytes / words_batch_data(form) + (bytes % words_batch_data(form) != 0 ? 1 : 0);
}

/// Numbers that a message takes; none if it is empty. @param batches of a bank
DAVIT_WORDS_BOTH std::uint32_t words_generations(WordsForm form, std::uint32_t batches, std::uint32_t bytes) {
  return (words_batches(form, bytes) + batches - 1) / batches;
}

/// Batches that are written for a message which begins with number `generation`.
DAVIT_WORDS_BOTH std::uint32_t words_written(WordsForm form, std::uint32_t batches, std::uint32_t generation,
                                             std::uint32_t bytes) {
  auto const count = words_generations(form, batches, bytes);
  return count > 0 && words_fills_bank(form, generation + count - 1) ? count * batches : words_batches(form, bytes);
}

/// Bytes of a region.
DAVIT_WORDS_BOTH std::size_t words_region_bytes(WordsForm form, std::uint32_t batches) {
  return std::size_t{2} * batches * words_batch_bytes(form);
}

/// Where batch number `batch` of a message lies in the region.
DAVIT_WORDS_BOTH std::size_t words_offset(WordsForm form, std::uint32_t batches, std::uint32_t generation,
                                          std::uint32_t batch) {
  std::uint32_t const bank = (generation + batch / batches) & 1U;
  return (std::size_t{bank} * batches + batch % batches) * words_batch_bytes(form);
}

/// Turns a lane's vectors into what it stores, in place. `carries` is words_carries_flag(form, lane): choices are made
/// value by value, since all lanes must go on to the same store.
template <WordsForm form>
DAVIT_WORDS_BOTH void words_pack(bool carries, std::uint32_t flag, WordsHeld& held) {
  if constexpr (form == WordsForm::unit4) {
    held[3] = {held[1].z, flag, held[1].w, flag};
    held[2] = {held[1].x, flag, held[1].y, flag};
    held[1] = {held[0].z, flag, held[0].w, flag};
    held[0] = {held[0].x, flag, held[0].y, flag};
  } else if constexpr (form == WordsForm::line62) {
    Quad const last{held[0].w >> 16U | (held[1].w & 0xffff0000U), held[2].w >> 16U | (held[3].w & 0xffff0000U),
                    held[4].w >> 16U | (held[5].w & 0xffff0000U), held[6].w >> 16U | flag << 16U};
    for (unsigned i = 0; i < 7; ++i) held[i].w = carries ? (held[i].w & 0xffffU) | flag << 16U : held[i].w;
    held[kWordsExtra] = {carries ? last.x : held[kWordsExtra].x, carries ? last.y : held[kWordsExtra].y,
                         carries ? last.z : held[kWordsExtra].z, carries ? last.w : held[kWordsExtra].w};
  } else {
    Quad const last{held[0].w, held[1].w, held[2].w, flag};
    for (unsigned i = 0; i < 3; ++i) held[i].w = carries ? flag : held[i].w;
    held[kWordsExtra] = {carries ? last.x : held[kWordsExtra].x, carries ? last.y : held[kWordsExtra].y,
                         carries ? last.z : held[kWordsExtra].z, carries ? last.w : held[kWordsExtra].w};
  }
}

/// Whether all flags of a lane are `flag`; a lane without flags has no objection.
template <WordsForm form>
DAVIT_WORDS_BOTH bool words_is_here(bool carries, std::uint32_t flag, WordsHeld const& held) {
  if constexpr (form == WordsForm::unit4) {
    std::uint32_t differs = 0;
    for (unsigned i = 0; i < 4; ++i) differs |= (held[i].y ^ flag) | (held[i].w ^ flag);
    return differs == 0;
  } else if constexpr (form == WordsForm::line62) {
    std::uint32_t differs = 0;
    for (unsigned i = 0; i < 8; ++i) differs |= (held[i].w >> 16U) ^ flag;
    return !carries || differs == 0;
  } else {
    std::uint32_t differs = held[kWordsExtra].w ^ flag;
    for (unsigned i = 0; i < 3; ++i) differs |= held[i].w ^ flag;
    return !carries || differs == 0;
  }
}

/// The inverse of words_pack.
template <WordsForm form>
DAVIT_WORDS_BOTH void words_unpack(bool carries, WordsHeld& held) {
  if constexpr (form == WordsForm::unit4) {
    held[0] = {held[0].x, held[0].z, held[1].x, held[1].z};
    held[1] = {held[2].x, held[2].z, held[3].x, held[3].z};
  } else if constexpr (form == WordsForm::line62) {
    Quad const last = held[kWordsExtra];
    std::uint32_t const ends[7] = {last.x << 16U, last.x & 0xffff0000U, last.y << 16U, last.y & 0xffff0000U,
                                   last.z << 16U, last.z & 0xffff0000U, last.w << 16U};
    for (unsigned i = 0; i < 7; ++i) held[i].w = carries ? (held[i].w & 0xffffU) | ends[i] : held[i].w;
  } else {
    Quad const last = held[kWordsExtra];
    held[0].w = carries ? last.x : held[0].w;
    held[1].w = carries ? last.y : held[1].w;
    held[2].w = carries ? last.z : held[2].w;
  }
}

/// The flag at the end of a batch, from its last 16 bytes.
DAVIT_WORDS_BOTH std::uint32_t words_last_flag(WordsForm form, Quad const& last) {
  return form == WordsForm::line62 ? last.w >> 16U : last.w;
}

}  // namespace davit::cuda
