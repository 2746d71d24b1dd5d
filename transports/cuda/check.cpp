// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda/check.hpp"

#include "davit/error.hpp"

namespace davit::cuda {

std::string text_of(cudaError_t result) {
  return std::string(cudaGetErrorName(result)) + ": " + cudaGetErrorString(result);
}

void fail(cudaError_t result, char const* call) {
  static_cast<void>(cudaGetLastError());
  int device = -1;
  auto const where = cudaGetDevice(&device) == cudaSuccess ? " on device " + std::to_string(device) : std::string();
  throw SystemError("davit: CUDA" + where + ": " + call + " gave " + text_of(result));
}

}  // namespace davit::cuda
