// SPDX-License-Identifier: Apache-2.0
/// @file
/// A warp's access to messages, blocks and rows alike, and to words that others write.
///
/// Vectors of a batch are held in registers, so every array index here must be known when loops are unrolled. Whole
/// vectors go by 16 or by 4 bytes, as alignment allows; what is left (odd addresses, the last bytes) byte by byte.
#pragma once

#include "transports/cuda/words.hpp"

namespace davit::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffU;

// Volatile: asks memory each time, past all caches, and is neither merged nor dropped. What a warp loads or stores by
// one of these goes as whole lines.
__device__ __forceinline__ Quad load_quad(void const* at) {
  Quad q;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(at)
               : "memory");
  return q;
}

__device__ __forceinline__ void store_quad(void* at, Quad const& q) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(at), "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
               : "memory");
}

// The same as two accesses of 8 bytes, of which each is promised to be whole.
__device__ __forceinline__ Quad load_halves(void const* at) {
  unsigned long long low = 0;
  unsigned long long high = 0;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
  return {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32U), static_cast<std::uint32_t>(high),
          static_cast<std::uint32_t>(high >> 32U)};
}

__device__ __forceinline__ void store_halves(void* at, Quad const& q) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(at), "l"(q.x | static_cast<unsigned long long>(q.y) << 32U),
                 "l"(q.z | static_cast<unsigned long long>(q.w) << 32U)
               : "memory");
}

__device__ __forceinline__ std::uint32_t load_word(std::uint32_t const* at) {
  std::uint32_t word = 0;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
  return word;
}

__device__ __forceinline__ void store_word(std::uint32_t* at, std::uint32_t word) {
  asm volatile("st.volatile.global.u32 [%0], %1;" : : "l"(at), "r"(word) : "memory");
}

__device__ __forceinline__ unsigned load_byte(std::byte const* at) {
  unsigned byte = 0;
  asm volatile("ld.volatile.global.u8 %0, [%1];" : "=r"(byte) : "l"(at) : "memory");
  return byte;
}

/// Bytes that go at a time: 16, 4 or 1.
template <class Place>
__device__ __forceinline__ unsigned message_unit(Place const& place) {
  auto const bits = reinterpret_cast<std::uintptr_t>(place.base) | (place.rows != nullptr ? place.row_bytes : 0U);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

/// Where byte `offset` of the message lies.
__device__ __forceinline__ std::byte const* source_at(WordsSource const& from, std::uint32_t offset) {
  if (from.rows == nullptr) return from.base + offset;
  std::uint32_t const row = offset / from.row_bytes;
  return from.base + static_cast<std::size_t>(load_word(from.rows + row)) * from.row_bytes +
         (offset - row * from.row_bytes);
}

/// Calls `store` with each place of byte `offset` of the message.
template <class Store>
__device__ __forceinline__ void each_target(WordsTarget const& to, std::uint32_t offset, Store const& store) {
  if (to.rows == nullptr) return store(to.base + offset);
  std::uint32_t const row = offset / to.row_bytes;
  std::uint32_t const column = offset - row * to.row_bytes;
  bool const once = to.first == nullptr;
  std::uint32_t const end = once ? row + 1 : load_word(to.first + row + 1);
#pragma unroll 1
  for (std::uint32_t i = once ? row : load_word(to.first + row); i < end; ++i) {
    store(to.base + static_cast<std::size_t>(load_word(to.rows + i)) * to.row_bytes + column);
  }
}

/// A lane's vectors of one batch.
struct BatchShare {
  WordsForm form;
  unsigned lane;
  std::uint32_t begin;  ///< of the batch in the message, bytes; may lie behind the message's end

  [[nodiscard]] __device__ __forceinline__ bool has(unsigned held) const { return words_has_vector(form, lane, held); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t offset(unsigned held) const {
    return begin + words_vector(form, lane, held) * 16;
  }
  /// Whether anything of the batch lies in bytes `whole` to `bytes` of the message: what goes byte by byte. The same on
  /// all lanes.
  [[nodiscard]] __device__ __forceinline__ bool touches(std::uint32_t whole, std::uint32_t bytes) const {
    return begin < bytes && whole < bytes && begin + words_batch_data(form) > whole;
  }
};

/// Takes a lane's vectors out of the message; zeros behind its end.
__device__ __forceinline__ void load_message(WordsSource const& from, BatchShare const& share, WordsHeld& held) {
  unsigned const unit = message_unit(from);
  std::uint32_t const whole = unit == 1 ? 0 : from.bytes / 16 * 16;  // bytes that go by larger units
#pragma unroll
  for (unsigned i = 0; i < kWordsHeld; ++i) held[i] = Quad{};
  if (unit == 16) {
    // All rows are looked up before the first is loaded: loads are issued in order, and each waits for its own address.
    std::byte const* at[kWordsHeld] = {};
#pragma unroll
    for (unsigned i = 0; i < kWordsHeld; ++i) {
      if (share.has(i) && share.offset(i) < whole) at[i] = source_at(from, share.offset(i));
    }
#pragma unroll
    for (unsigned i = 0; i < kWordsHeld; ++i) {
      if (share.has(i) && share.offset(i) < whole) held[i] = load_quad(at[i]);
    }
  } else if (unit == 4) {
#pragma unroll
    for (unsigned i = 0; i < kWordsHeld; ++i) {
      if (!share.has(i) || share.offset(i) >= whole) continue;
      auto const word = [&](unsigned k) {
        return load_word(reinterpret_cast<std::uint32_t const*>(source_at(from, share.offset(i) + 4 * k)));
      };
      held[i] = {word(0), word(1), word(2), word(3)};
    }
  }
  if (!share.touches(whole, from.bytes)) return;
#pragma unroll 1
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    std::uint32_t const offset = share.offset(i);
    if (!share.has(i) || offset < whole || offset >= from.bytes) continue;
    std::uint32_t const count = from.bytes - offset;
    std::uint32_t word[4] = {};
#pragma unroll
    for (unsigned b = 0; b < 16; ++b) {
      if (b < count) word[b / 4] |= load_byte(source_at(from, offset + b)) << (b % 4 * 8);
    }
#pragma unroll
    for (unsigned k = 0; k < kWordsHeld; ++k) {
      if (k == i) held[k] = {word[0], word[1], word[2], word[3]};
    }
  }
}

/// Whole vectors to rows: as in load_message, what is looked up is looked up for all first.
__device__ __forceinline__ void store_rows(WordsTarget const& to, BatchShare const& share, std::uint32_t whole,
                                           WordsHeld const& held) {
  std::uint32_t next[kWordsHeld] = {};
  std::uint32_t end[kWordsHeld] = {};
  std::uint32_t place[kWordsHeld] = {};
#pragma unroll
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    if (!share.has(i) || share.offset(i) >= whole) continue;
    std::uint32_t const row = share.offset(i) / to.row_bytes;
    next[i] = to.first == nullptr ? row : load_word(to.first + row);
    end[i] = to.first == nullptr ? row + 1 : load_word(to.first + row + 1);
  }
#pragma unroll
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    if (next[i] < end[i]) place[i] = load_word(to.rows + next[i]);
  }
#pragma unroll
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    std::uint32_t const column = share.offset(i) % to.row_bytes;
#pragma unroll 1
    while (next[i] < end[i]) {
      *reinterpret_cast<Quad*>(to.base + static_cast<std::size_t>(place[i]) * to.row_bytes + column) = held[i];
      if (++next[i] < end[i]) place[i] = load_word(to.rows + next[i]);
    }
  }
}

/// Puts a lane's vectors into the message's places.
__device__ __forceinline__ void store_message(WordsTarget const& to, BatchShare const& share, WordsHeld const& held) {
  unsigned const unit = message_unit(to);
  std::uint32_t const whole = unit == 1 ? 0 : to.bytes / 16 * 16;
  if (unit == 16 && to.rows != nullptr) {
    store_rows(to, share, whole, held);
  } else if (unit == 16) {
#pragma unroll
    for (unsigned i = 0; i < kWordsHeld; ++i) {
      if (share.has(i) && share.offset(i) < whole) *reinterpret_cast<Quad*>(to.base + share.offset(i)) = held[i];
    }
  } else if (unit == 4) {
#pragma unroll
    for (unsigned i = 0; i < kWordsHeld; ++i) {
      if (!share.has(i) || share.offset(i) >= whole) continue;
      std::uint32_t const word[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        each_target(to, share.offset(i) + 4 * k,
                    [&](std::byte* at) { *reinterpret_cast<std::uint32_t*>(at) = word[k]; });
      }
    }
  }
  if (!share.touches(whole, to.bytes)) return;
#pragma unroll 1
  for (unsigned i = 0; i < kWordsHeld; ++i) {
    std::uint32_t const offset = share.offset(i);
    if (!share.has(i) || offset < whole || offset >= to.bytes) continue;
    Quad chosen{};
#pragma unroll
    for (unsigned k = 0; k < kWordsHeld; ++k) {
      if (k == i) chosen = held[k];
    }
    std::uint32_t const word[4] = {chosen.x, chosen.y, chosen.z, chosen.w};
    std::uint32_t const count = to.bytes - offset;
#pragma unroll
    for (unsigned b = 0; b < 16; ++b) {
      if (b >= count) continue;
      each_target(to, offset + b, [&](std::byte* at) { *at = static_cast<std::byte>(word[b / 4] >> (b % 4 * 8)); });
    }
  }
}

}  // namespace davit::cuda
