// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda/check.hpp"
#include "transports/cuda/device_work.cuh"
#include "transports/cuda/row_kernels.hpp"

namespace davit::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kUnroll = 4;      // loads in flight a thread: 1 MiB in all, a link wants 128 KiB
constexpr unsigned kTileRows = 256;  // whose moves a block keeps at hand
constexpr unsigned kAhead = 32;      // further ones, for rows that go to several places
constexpr unsigned kNoRow = ~0U;

static_assert(kTileRows * kMostRowBytes <= 1ULL << 31U, "units of a tile are counted in 32 bits");

// Index arrays were written before the launch, so plain loads see them; volatile ones would go over the link one lane
// after the other, a microsecond each. Rows are asked for anew (ld.cv): they may lie in slots, which others write.
__device__ IndexPair load_move(IndexPair const* at) {
  longlong2 const pair = *reinterpret_cast<longlong2 const*>(at);
  return {pair.x, pair.y};
}

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    move_rows(Unit* to, Unit const* from, unsigned units, IndexPair const* moves, unsigned count, Units each) {
  __shared__ IndexPair window[1 + kTileRows + kAhead];  // begins with the move before the tile
  Share const share(static_cast<Units>(count) * units, each);
  if (share.is_empty()) return;
  unsigned const last_row = share.last_row(units);
  for (unsigned tile = share.first_row(units); tile <= last_row; tile += kTileRows) {
    unsigned const rows = min(kTileRows, last_row + 1 - tile);
    unsigned const known = min(count - tile, rows + kAhead);
    for (unsigned i = threadIdx.x; i < 1 + known; i += kThreads) {
      if (tile + i > 0) window[i] = load_move(moves + (tile + i - 1));
    }
    __syncthreads();
    unsigned const end = share.end_unit(tile, rows, units);
    for (unsigned base = share.first_unit(tile, units) + threadIdx.x; base < end; base += kThreads * kUnroll) {
      Unit held[kUnroll];
      unsigned row_of[kUnroll];
#pragma unroll
      for (unsigned u = 0; u < kUnroll; ++u) {
        row_of[u] = kNoRow;
        unsigned const unit = base + u * kThreads;
        if (unit >= end) continue;
        unsigned const row = unit / units;
        // A row that is moved again is left to the first of its moves.
        if (tile + row > 0 && window[row].from == window[1 + row].from) continue;
        row_of[u] = row;
        held[u] = __ldcv(from + window[1 + row].from * units + (unit - row * units));
      }
#pragma unroll
      for (unsigned u = 0; u < kUnroll; ++u) {
        if (row_of[u] == kNoRow) continue;
        unsigned row = row_of[u];
        unsigned const column = base + u * kThreads - row * units;
        IndexPair move = window[1 + row];
        long long const source = move.from;
        do {
          to[move.to * units + column] = held[u];
          ++row;
          if (tile + row >= count) break;
          move = row < known ? window[1 + row] : load_move(moves + (tile + row));
        } while (move.from == source);
      }
    }
    __syncthreads();
  }
}

template <class Unit>
void launch_units(cudaStream_t stream, MoveRows const& rows) {
  auto const units = static_cast<unsigned>(rows.row_bytes / sizeof(Unit));
  Shares const shares(static_cast<Units>(rows.count) * units, kThreads);
  move_rows<Unit><<<shares.blocks, kThreads, 0, stream>>>(reinterpret_cast<Unit*>(rows.to),
                                                          reinterpret_cast<Unit const*>(rows.from), units, rows.moves,
                                                          rows.count, shares.each);
  check(cudaGetLastError(), "launch of move_rows");
}

}  // namespace

void launch(cudaStream_t stream, MoveRows const& rows) {
  auto const bits = reinterpret_cast<std::uintptr_t>(rows.to) | reinterpret_cast<std::uintptr_t>(rows.from) |
                    static_cast<std::uintptr_t>(rows.row_bytes);
  if (bits % 16 == 0) return launch_units<uint4>(stream, rows);
  if (bits % 8 == 0) return launch_units<uint2>(stream, rows);
  if (bits % 4 == 0) return launch_units<unsigned>(stream, rows);
  if (bits % 2 == 0) return launch_units<unsigned short>(stream, rows);
  launch_units<unsigned char>(stream, rows);
}

void load_move_kernels(cudaStream_t stream) {
  for (std::size_t const row_bytes : {16, 8, 4, 2, 1})
    launch(stream, MoveRows{nullptr, nullptr, row_bytes, nullptr, 0});
}

}  // namespace davit::cuda
