// SPDX-License-Identifier: Apache-2.0
/// @file
/// How row kernels divide their work: units of all rows are numbered through, and each block takes one contiguous
/// share, so that few long rows load all blocks as evenly as many short ones.
#pragma once

#include <algorithm>

namespace davit::cuda {

/// Blocks of a row kernel: a few dozen saturate a PCIe link either way, and on the device's own memory these move a
/// chunk of 4 MiB in a tenth of the time that the link takes; the rest of the device is the program's.
inline constexpr unsigned kRowBlocks = 64;

using Units = unsigned long long;

struct Shares {
  Units total;
  Units each;
  unsigned blocks;

  Shares(Units units, unsigned threads) : total(units) {
    Units const even = (units + kRowBlocks - 1) / kRowBlocks;
    each = std::max<Units>((even + threads - 1) / threads * threads, threads);
    blocks = static_cast<unsigned>(std::max<Units>((units + each - 1) / each, 1));
  }
};

/// A block's share, as rows and units of its first and last one.
struct Share {
  Units begin;
  Units end;

  __device__ Share(Units total, Units each) : begin(blockIdx.x * each), end(min(begin + each, total)) {}
  [[nodiscard]] __device__ bool is_empty() const { return begin >= end; }
  [[nodiscard]] __device__ unsigned first_row(unsigned units_a_row) const {
    return static_cast<unsigned>(begin / units_a_row);
  }
  [[nodiscard]] __device__ unsigned last_row(unsigned units_a_row) const {
    return static_cast<unsigned>((end - 1) / units_a_row);
  }
  // Of the rows from `row` on, counted from there.
  [[nodiscard]] __device__ unsigned first_unit(unsigned row, unsigned units_a_row) const {
    Units const here = static_cast<Units>(row) * units_a_row;
    return begin > here ? static_cast<unsigned>(begin - here) : 0;
  }
  [[nodiscard]] __device__ unsigned end_unit(unsigned row, unsigned rows, unsigned units_a_row) const {
    Units const here = static_cast<Units>(row) * units_a_row;
    return static_cast<unsigned>(min(end - here, static_cast<Units>(rows) * units_a_row));
  }
};

}  // namespace davit::cuda
