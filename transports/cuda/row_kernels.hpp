// SPDX-License-Identifier: Apache-2.0
/// @file
/// Row kernels of the device: the same operations and the same bits as transports/host/kernels.hpp. Any pointer may be
/// to device memory or to host memory that the device reaches; index arrays lie in the latter.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "davit/dtype.hpp"

namespace davit::cuda {

/// As host::RowMove.
struct IndexPair {
  long long from;
  long long to;
};

struct MoveRows {
  std::byte* to;
  std::byte const* from;
  std::size_t row_bytes;  ///< 1 to kMostRowBytes
  IndexPair const* moves;
  unsigned count;
};

/// Above, a copy engine takes a row as well as a kernel does.
inline constexpr std::size_t kMostRowBytes = std::size_t{1} << 22;

/// Units of 16, 8, 4, 2 or 1 bytes, as `row_bytes` and both pointers allow. Moves with the same `from` one after the
/// other read their row once: so a row that came for several experts crosses the link once.
void launch(cudaStream_t stream, MoveRows const& rows);

/// One addend.
struct alignas(16) RowAddend {
  std::byte const* row;
  float weight;
  std::uint32_t closes_group;
};

struct SumRows {
  Dtype in;
  Dtype inner;
  Dtype out_type;
  bool weighted;
  bool rounds_inner;
  bool aligned;  ///< see can_sum_by_16
  RowAddend const* terms;
  unsigned const* first;  ///< `rows` + 1 entries, from 0
  unsigned rows;
  unsigned columns;
  std::byte* out;
  std::size_t out_stride;
  std::byte const* bias;  ///< null if none
};

/// Whether 16 bytes of terms are added at a time. @param bits all terms' row addresses, or-ed.
[[nodiscard]] bool can_sum_by_16(SumRows const& sum, std::uintptr_t bits) noexcept;

void launch(cudaStream_t stream, SumRows const& sum);

/// Launches each kernel once, without work.
void load_move_kernels(cudaStream_t stream);
void load_sum_kernels(cudaStream_t stream);

}  // namespace davit::cuda
