// SPDX-License-Identifier: Apache-2.0
/// @file
/// The changes of data between calls, by small kernels: the same values as host_device.cpp writes.
#pragma once

#include <cuda_runtime_api.h>

#include "examples/davit_perf/device.hpp"

namespace perf {

void launch(cudaStream_t stream, BlockChange const& change);
void launch(cudaStream_t stream, RowChange const& change);

}  // namespace perf
