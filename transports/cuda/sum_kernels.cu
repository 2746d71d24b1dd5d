// SPDX-License-Identifier: Apache-2.0
// Sums have the host kernels' bits: products and sums are rounded apart, in f32, in the order of the terms; every NaN
// that is stored is the positive one with full mantissa. A sum starts from -0.0, which leaves every first term as it
// is.
#include <cuda_fp16.h>

#include "davit/error.hpp"
#include "transports/cuda/check.hpp"
#include "transports/cuda/device_work.cuh"
#include "transports/cuda/row_kernels.hpp"

namespace davit::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kUnroll = 4;     // terms in flight a thread
constexpr unsigned kTileRows = 64;  // whose terms a block keeps at hand
constexpr unsigned kTileTerms = 1024;
constexpr unsigned kMostUnits = 1U << 30U;  // of a tile: they are counted in 32 bits

__device__ bool is_nan(float value) { return value != value; }

__device__ unsigned short to_f16(float value) {
  return is_nan(value) ? static_cast<unsigned short>(0x7fff) : __half_as_ushort(__float2half_rn(value));
}

__device__ float from_f16(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }

__device__ unsigned short to_bf16(float value) {
  unsigned const bits = __float_as_uint(value);
  return static_cast<unsigned short>(is_nan(value) ? 0x7fffU : (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

__device__ float from_bf16(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16U); }

__device__ float to_f32(float value) { return is_nan(value) ? __uint_as_float(0x7fffffffU) : value; }

__device__ float through(Dtype dtype, float value) {
  if (dtype == f16) return from_f16(to_f16(value));
  if (dtype == bf16) return from_bf16(to_bf16(value));
  return value;
}

template <Dtype dtype>
constexpr unsigned element_bytes = static_cast<unsigned>(size_of(dtype));

// `count` columns of one row as they lie in memory.
template <unsigned bytes>
struct Raw {
  static constexpr unsigned words = (bytes + 3) / 4;
  unsigned word[words];

  __device__ void load(std::byte const* at) {
    if constexpr (bytes == 2) {
      word[0] = __ldcv(reinterpret_cast<unsigned short const*>(at));
    } else if constexpr (bytes == 4) {
      word[0] = __ldcv(reinterpret_cast<unsigned const*>(at));
    } else if constexpr (bytes == 8) {
      uint2 const both = __ldcv(reinterpret_cast<uint2 const*>(at));
      word[0] = both.x, word[1] = both.y;
    } else {
#pragma unroll
      for (unsigned i = 0; i < bytes / 16; ++i) {
        uint4 const four = __ldcv(reinterpret_cast<uint4 const*>(at) + i);
        word[4 * i] = four.x, word[4 * i + 1] = four.y, word[4 * i + 2] = four.z, word[4 * i + 3] = four.w;
      }
    }
  }

  __device__ void store(std::byte* at) const {
    if constexpr (bytes == 2) {
      *reinterpret_cast<unsigned short*>(at) = static_cast<unsigned short>(word[0]);
    } else if constexpr (bytes == 4) {
      *reinterpret_cast<unsigned*>(at) = word[0];
    } else if constexpr (bytes == 8) {
      *reinterpret_cast<uint2*>(at) = make_uint2(word[0], word[1]);
    } else {
#pragma unroll
      for (unsigned i = 0; i < bytes / 16; ++i) {
        reinterpret_cast<uint4*>(at)[i] = make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
      }
    }
  }

  template <Dtype dtype>
  [[nodiscard]] __device__ float get(unsigned column) const {
    if constexpr (dtype == f32) {
      return __uint_as_float(word[column]);
    } else {
      auto const half = static_cast<unsigned short>(word[column / 2] >> (column % 2 * 16));
      return dtype == f16 ? from_f16(half) : from_bf16(half);
    }
  }

  template <Dtype dtype>
  __device__ void put(unsigned column, float value) {
    if constexpr (dtype == f32) {
      word[column] = __float_as_uint(to_f32(value));
    } else {
      unsigned const half = dtype == f16 ? to_f16(value) : to_bf16(value);
      if (column % 2 == 0) {
        word[column / 2] = half;
      } else {
        word[column / 2] |= half << 16U;
      }
    }
  }
};

template <Dtype out, unsigned columns>
__device__ void finish(SumRows const& sum, std::size_t offset, float const (&total)[columns]) {
  Raw<columns * element_bytes<out>> bias;
  Raw<columns * element_bytes<out>> result;
  if (sum.bias != nullptr) bias.load(sum.bias + offset);
#pragma unroll
  for (unsigned c = 0; c < columns; ++c) {
    float const value = sum.bias == nullptr ? total[c] : __fadd_rn(total[c], bias.template get<out>(c));
    result.template put<out>(c, value);
  }
  result.store(sum.out + offset);
}

template <Dtype in, unsigned columns>
__global__ void __launch_bounds__(kThreads) sum_rows(SumRows sum, unsigned tile_rows, Units each) {
  __shared__ RowAddend terms[kTileTerms];
  __shared__ unsigned first[kTileRows + 1];
  unsigned const units = sum.columns / columns;
  Share const share(static_cast<Units>(sum.rows) * units, each);
  if (share.is_empty()) return;
  unsigned const last_row = share.last_row(units);

  auto const far_term = [&sum](unsigned term) {
    ulonglong2 const both = *reinterpret_cast<ulonglong2 const*>(sum.terms + term);  // plain: see move_kernels.cu
    return RowAddend{reinterpret_cast<std::byte const*>(both.x), __uint_as_float(static_cast<unsigned>(both.y)),
                     static_cast<unsigned>(both.y >> 32U)};
  };
  for (unsigned tile = share.first_row(units); tile <= last_row; tile += tile_rows) {
    unsigned const rows = min(tile_rows, last_row + 1 - tile);
    for (unsigned i = threadIdx.x; i <= rows; i += kThreads) first[i] = sum.first[tile + i];
    __syncthreads();
    unsigned const near = first[0];
    for (unsigned i = threadIdx.x; i < min(first[rows] - near, kTileTerms); i += kThreads)
      terms[i] = far_term(near + i);
    __syncthreads();

    unsigned const end = share.end_unit(tile, rows, units);
    for (unsigned unit = share.first_unit(tile, units) + threadIdx.x; unit < end; unit += kThreads) {
      unsigned const row = unit / units;
      unsigned const column = (unit - row * units) * columns;
      unsigned const last_term = first[row + 1];
      float total[columns];
      float group[columns];
#pragma unroll
      for (unsigned c = 0; c < columns; ++c) total[c] = group[c] = -0.0F;
      for (unsigned base = first[row]; base < last_term; base += kUnroll) {
        Raw<columns * element_bytes<in>> raw[kUnroll];
        float weight[kUnroll];
        bool closes[kUnroll];
#pragma unroll
        for (unsigned u = 0; u < kUnroll; ++u) {
          if (base + u >= last_term) continue;
          RowAddend const term = base + u - near < kTileTerms ? terms[base + u - near] : far_term(base + u);
          raw[u].load(term.row + static_cast<std::size_t>(column) * element_bytes<in>);
          weight[u] = term.weight;
          closes[u] = term.closes_group != 0 || base + u + 1 == last_term;
        }
#pragma unroll
        for (unsigned u = 0; u < kUnroll; ++u) {
          if (base + u >= last_term) continue;
#pragma unroll
          for (unsigned c = 0; c < columns; ++c) {
            float const value = raw[u].template get<in>(c);
            group[c] = __fadd_rn(group[c], sum.weighted ? __fmul_rn(weight[u], value) : value);
          }
          if (!sum.rounds_inner || !closes[u]) continue;
#pragma unroll
          for (unsigned c = 0; c < columns; ++c) {
            total[c] = __fadd_rn(total[c], through(sum.inner, group[c]));
            group[c] = -0.0F;
          }
        }
      }
#pragma unroll
      for (unsigned c = 0; c < columns; ++c) {
        if (!sum.rounds_inner) total[c] = group[c];
        if (first[row] == last_term) total[c] = 0.0F;
      }
      std::size_t const start = (static_cast<std::size_t>(tile) + row) * sum.out_stride;
      if (sum.out_type == f32) {
        finish<f32>(sum, start + static_cast<std::size_t>(column) * element_bytes<f32>, total);
      } else if (sum.out_type == f16) {
        finish<f16>(sum, start + static_cast<std::size_t>(column) * element_bytes<f16>, total);
      } else {
        finish<bf16>(sum, start + static_cast<std::size_t>(column) * element_bytes<bf16>, total);
      }
    }
    __syncthreads();
  }
}

template <Dtype in, unsigned columns>
void launch_columns(cudaStream_t stream, SumRows const& sum, unsigned terms_a_row) {
  auto const units = sum.columns / columns;
  auto const most_rows = std::clamp(kMostUnits / std::max(units, 1U), 1U, kTileRows);
  auto const tile_rows = std::clamp(kTileTerms / std::max(terms_a_row, 1U), 1U, most_rows);
  Shares const shares(static_cast<Units>(sum.rows) * units, kThreads);
  sum_rows<in, columns><<<shares.blocks, kThreads, 0, stream>>>(sum, tile_rows, shares.each);
  check(cudaGetLastError(), "launch of sum_rows");
}

template <Dtype in>
void launch_in(cudaStream_t stream, SumRows const& sum, unsigned terms_a_row) {
  if (sum.aligned) return launch_columns<in, 16 / element_bytes<in>>(stream, sum, terms_a_row);
  launch_columns<in, 1>(stream, sum, terms_a_row);
}

void launch_with(cudaStream_t stream, SumRows const& sum, unsigned terms_a_row) {
  if (sum.in == f32) return launch_in<f32>(stream, sum, terms_a_row);
  if (sum.in == f16) return launch_in<f16>(stream, sum, terms_a_row);
  launch_in<bf16>(stream, sum, terms_a_row);
}

}  // namespace

bool can_sum_by_16(SumRows const& sum, std::uintptr_t bits) noexcept {
  auto const columns = 16 / size_of(sum.in);
  auto const out_bits = reinterpret_cast<std::uintptr_t>(sum.out) | reinterpret_cast<std::uintptr_t>(sum.bias) |
                        static_cast<std::uintptr_t>(sum.out_stride);
  auto const out_bytes = std::min<std::size_t>(16, columns * size_of(sum.out_type));
  return sum.columns % columns == 0 && bits % 16 == 0 && out_bits % out_bytes == 0;
}

void launch(cudaStream_t stream, SumRows const& sum) {
  if (!is_summable(sum.in) || !is_summable(sum.inner) || !is_summable(sum.out_type)) {
    throw SystemError("davit: rows of this type cannot be summed");
  }
  launch_with(stream, sum, sum.rows == 0 ? 0 : (sum.first[sum.rows] + sum.rows - 1) / sum.rows);
}

void load_sum_kernels(cudaStream_t stream) {
  for (Dtype const in : {f32, f16, bf16}) {
    for (bool const aligned : {true, false}) {
      SumRows const nothing{in, f32, f32, false, false, aligned, nullptr, nullptr, 0, 0, nullptr, 0, nullptr};
      launch_with(stream, nothing, 0);
    }
  }
}

}  // namespace davit::cuda
