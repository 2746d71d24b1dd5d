// SPDX-License-Identifier: Apache-2.0
/// @file
/// Failed CUDA calls become SystemErrors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace davit::cuda {

/// "cudaErrorNoDevice: no CUDA-capable device is detected".
[[nodiscard]] std::string text_of(cudaError_t result);

/// Throws SystemError with the call's text. The thread's last error is cleared first: it is told here, and must not
/// appear again at the program's next check.
[[noreturn]] void fail(cudaError_t result, char const* call);

inline void check(cudaError_t result, char const* call) {
  if (result != cudaSuccess) fail(result, call);
}

/// For destructors, where a failure (a runtime that is gone already, mostly) has nobody to go to.
inline void ignore(cudaError_t result) noexcept {
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace davit::cuda

#define DAVIT_CUDA_CHECK(call) ::davit::cuda::check((call), #call)
