// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/cuda/kernels.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "transports/cuda/check.hpp"

namespace moe {
namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t elements) {
  return static_cast<unsigned>(std::clamp<std::size_t>((elements + kThreads - 1) / kThreads, 1, 1024));
}

/// Each element on its own.
template <class Apply>
__global__ void for_each(std::size_t elements, Apply apply) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) apply(i);
}

template <class Apply>
void launch(cudaStream_t stream, std::size_t elements, Apply apply) {
  if (elements == 0) return;
  for_each<<<blocks_for(elements), kThreads, 0, stream>>>(elements, apply);
  davit::cuda::check(cudaGetLastError(), "launch of an expert's kernel");
}

struct Widen {
  davit::Dtype dtype;
  std::byte const* from;
  float* to;
  __device__ void operator()(std::size_t i) const {
    if (dtype == davit::f32) {
      to[i] = reinterpret_cast<float const*>(from)[i];
    } else if (dtype == davit::f16) {
      to[i] = __half2float(reinterpret_cast<__half const*>(from)[i]);
    } else {
      to[i] = __bfloat162float(reinterpret_cast<__nv_bfloat16 const*>(from)[i]);
    }
  }
};

struct Narrow {
  davit::Dtype dtype;
  float const* from;
  std::byte* to;
  __device__ void operator()(std::size_t i) const {
    if (dtype == davit::f32) {
      reinterpret_cast<float*>(to)[i] = from[i];
    } else if (dtype == davit::f16) {
      reinterpret_cast<__half*>(to)[i] = __float2half_rn(from[i]);
    } else {
      reinterpret_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(from[i]);
    }
  }
};

struct Activate {
  bool is_relu;
  float* values;
  __device__ void operator()(std::size_t i) const {
    float const value = values[i];
    values[i] = is_relu ? (value > 0 ? value : 0.0F) : value / (1.0F + expf(-value));
  }
};

}  // namespace

void launch_widen(cudaStream_t stream, davit::Dtype dtype, std::byte const* from, float* to, std::size_t elements) {
  launch(stream, elements, Widen{dtype, from, to});
}

void launch_narrow(cudaStream_t stream, davit::Dtype dtype, float const* from, std::byte* to, std::size_t elements) {
  launch(stream, elements, Narrow{dtype, from, to});
}

void launch_activate(cudaStream_t stream, Activation activation, float* values, std::size_t elements) {
  launch(stream, elements, Activate{activation == Activation::relu, values});
}

}  // namespace moe
