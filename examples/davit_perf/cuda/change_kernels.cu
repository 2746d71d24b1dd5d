// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/cuda/change_kernels.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "examples/davit_perf/change.hpp"
#include "transports/cuda/check.hpp"

namespace perf {
namespace {

constexpr unsigned kBlocks = 128;  // of data a launch, so that their places fit its parameters

struct Places {
  long long count[kBlocks];
  long long displ[kBlocks];
};

__device__ void store(davit::Dtype dtype, float value, std::byte* to) {
  if (dtype == davit::f32) {
    *reinterpret_cast<float*>(to) = value;
  } else if (dtype == davit::f16) {
    *reinterpret_cast<__half*>(to) = __float2half_rn(value);
  } else {
    *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(value);
  }
}

/// A thread a block of data, since places of a short one overlap and the last must win. They need not be aligned.
__global__ void change_blocks(std::byte* data, Places places, unsigned blocks, long long first, davit::Dtype dtype,
                              long long largest, unsigned long long key) {
  unsigned const block = threadIdx.x;
  if (block >= blocks || places.count[block] == 0) return;
  bool const is_bytes = dtype == davit::u8;
  long long const bytes = places.count[block];
  long long const element = is_bytes ? 8 : static_cast<long long>(size_of(dtype));
  long long const length = element < bytes ? element : bytes;
  for (long long i = 0; i < changed_places; ++i) {
    std::byte* const to = data + places.displ[block] + changed_at(bytes, length, i);
    unsigned long long bits = changed_bits(key, first + block, i);
    if (!is_bytes) {
      store(dtype, static_cast<float>(whole_number(bits, largest)), to);
      continue;
    }
    for (long long byte = 0; byte < length; ++byte, bits >>= 8U) to[byte] = static_cast<std::byte>(bits & 0xffU);
  }
}

__global__ void change_rows(RowChange change, long long column, long long first) {
  long long const row = first + changed_row_step * (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (row >= change.count) return;
  auto const element = static_cast<long long>(size_of(change.dtype));
  store(change.dtype, changed_value(change.seed, change.round, row),
        change.rows + (row * change.hidden + column) * element);
}

}  // namespace

void launch(cudaStream_t stream, BlockChange const& change) {
  for (std::size_t first = 0; first < change.counts.size(); first += kBlocks) {
    auto const blocks = std::min<std::size_t>(kBlocks, change.counts.size() - first);
    Places places{};
    for (std::size_t i = 0; i < blocks; ++i) {
      places.count[i] = change.counts[first + i];
      places.displ[i] = change.displs[first + i];
    }
    change_blocks<<<1, kBlocks, 0, stream>>>(change.data, places, static_cast<unsigned>(blocks),
                                             static_cast<long long>(first), change.numbers.value_or(davit::u8),
                                             change.largest, change.key);
    davit::cuda::check(cudaGetLastError(), "launch of change_blocks");
  }
}

void launch(cudaStream_t stream, RowChange const& change) {
  constexpr unsigned threads = 128;
  auto const first = static_cast<std::int64_t>(change.round % changed_row_step);
  if (first >= change.count) return;
  auto const rows = (change.count - first + changed_row_step - 1) / changed_row_step;
  change_rows<<<static_cast<unsigned>((rows + threads - 1) / threads), threads, 0, stream>>>(
      change, changed_column(change.round, change.hidden), first);
  davit::cuda::check(cudaGetLastError(), "launch of change_rows");
}

}  // namespace perf
