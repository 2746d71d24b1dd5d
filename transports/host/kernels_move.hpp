// SPDX-License-Identifier: Apache-2.0
/// @file
/// Row moves over vectors of any width; see kernels_vectors.hpp.
#pragma once

#include "transports/host/kernels_table.hpp"
#include "transports/host/kernels_vectors.hpp"

namespace davit::host {

template <class Isa>
struct MoveKernels {
  template <class Byte>
  [[gnu::always_inline]] static Byte* row(Byte* rows, std::int64_t index, std::size_t row_bytes) {
    return rows + static_cast<std::size_t>(index) * row_bytes;
  }

  using Words16 = Vectors<16>::Words;
  struct Words32 {
    Words16 low, high;
  };

  // Rows of sizeof(T) to 2 * sizeof(T) bytes: a head and a tail that may overlap, instead of a call each.
  template <class T>
  static void move_small(std::byte* to, std::byte const* from, std::size_t row_bytes, RowMove const* moves,
                         std::size_t count) {
    std::size_t const tail = row_bytes - sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
      std::byte const* const source = row(from, moves[i].from, row_bytes);
      std::byte* const target = row(to, moves[i].to, row_bytes);
      T const first = read<T>(source);
      T const last = read<T>(source + tail);
      write(target, first);
      write(target + tail, last);
    }
  }

  // Only whole lines go past the caches: a line that is written both ways costs ten times as much.
  static void stream_row(std::byte* to, std::byte const* from, std::size_t bytes) {
    using Floats = typename Isa::Floats;
    constexpr std::size_t vectors = cache_line / sizeof(Floats);
    std::size_t at = -reinterpret_cast<std::uintptr_t>(to) % cache_line;
    __builtin_memcpy(to, from, at);
    for (; bytes - at >= cache_line; at += cache_line) {
      Floats block[vectors];
      for (std::size_t i = 0; i < vectors; ++i) block[i] = read<Floats>(from + at + i * sizeof(Floats));
      for (std::size_t i = 0; i < vectors; ++i) Isa::stream(to + at + i * sizeof(Floats), block[i]);
    }
    __builtin_memcpy(to + at, from + at, bytes - at);
  }

  // GB/s of rows scattered over 128 MiB by one core of a 5th-generation Xeon, streaming against memcpy:
  //   row bytes                       128          192         1000         4096        14336
  //   source in L2            17.5 :  3.4  18.1 :  3.1  16.3 :  4.8  21.4 :  9.3  21.1 : 10.5
  //   source in DRAM           4.3 :  3.7   5.1 :  3.8   6.8 :  4.0   9.7 :  6.9  10.3 :  6.9
  // Below, rows that share lines with their neighbours (160: 3.3 : 3.4 from DRAM) win nothing, so memcpy does those.
  static constexpr std::size_t streaming_row_bytes = 192;

  // Longer rows gain 2 to 8 % from DRAM if the next one's head is fetched meanwhile; shorter ones lose.
  static constexpr std::size_t fetched_row_bytes = 2048;
  static constexpr std::size_t fetched_head_bytes = 256;

  static void stream_rows(std::byte* to, std::byte const* from, std::size_t row_bytes, RowMove const* moves,
                          std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (row_bytes >= fetched_row_bytes && i + 1 < count) {
        std::byte const* const next = row(from, moves[i + 1].from, row_bytes);
        for (std::size_t at = 0; at < fetched_head_bytes; at += cache_line) __builtin_prefetch(next + at);
      }
      stream_row(row(to, moves[i].to, row_bytes), row(from, moves[i].from, row_bytes), row_bytes);
    }
    Isa::fence();
  }

  static void move_rows(std::byte* to, std::byte const* from, std::size_t row_bytes, RowMove const* moves,
                        std::size_t count, Stores stores) {
    if (row_bytes == 0) return;
    if (row_bytes < 2) return move_small<std::uint8_t>(to, from, row_bytes, moves, count);
    if (row_bytes < 4) return move_small<std::uint16_t>(to, from, row_bytes, moves, count);
    if (row_bytes < 8) return move_small<std::uint32_t>(to, from, row_bytes, moves, count);
    if (row_bytes < 16) return move_small<std::uint64_t>(to, from, row_bytes, moves, count);
    if (row_bytes < 32) return move_small<Words16>(to, from, row_bytes, moves, count);
    if (row_bytes <= 64) return move_small<Words32>(to, from, row_bytes, moves, count);
    if (stores == Stores::streaming && row_bytes >= streaming_row_bytes) {
      return stream_rows(to, from, row_bytes, moves, count);
    }
    for (std::size_t i = 0; i < count; ++i) {
      __builtin_memcpy(row(to, moves[i].to, row_bytes), row(from, moves[i].from, row_bytes), row_bytes);
    }
  }
};

}  // namespace davit::host
