// SPDX-License-Identifier: Apache-2.0
/// @file
/// What stands between the experts' products: as rows.hpp and Expert::apply do on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "davit/dtype.hpp"
#include "examples/moe_layer/options.hpp"

namespace moe {

void launch_widen(cudaStream_t stream, davit::Dtype dtype, std::byte const* from, float* to, std::size_t elements);
void launch_narrow(cudaStream_t stream, davit::Dtype dtype, float const* from, std::byte* to, std::size_t elements);
void launch_activate(cudaStream_t stream, Activation activation, float* values, std::size_t elements);

}  // namespace moe
