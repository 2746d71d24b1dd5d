// SPDX-License-Identifier: Apache-2.0
/// @file
/// Driver functions that have no runtime counterpart, fetched by name and version so that nothing links libcuda: the
/// library must load on machines without a driver.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

namespace davit::cuda {

struct Driver {
  PFN_cuStreamWriteValue32_v11070 stream_write;
  PFN_cuStreamWaitValue32_v11070 stream_wait;
  PFN_cuStreamBatchMemOp_v11070 stream_batch;
  PFN_cuCtxPushCurrent_v4000 push_context;
  PFN_cuCtxPopCurrent_v4000 pop_context;
  PFN_cuDeviceGet_v2000 device_get;
  PFN_cuDevicePrimaryCtxRetain_v7000 retain_context;
  PFN_cuGetErrorName_v6000 error_name;
};

/// The loaded driver. @throws SystemError naming the function that it lacks; asked again at the next call then.
[[nodiscard]] Driver const& driver();

[[noreturn]] void fail(CUresult result, char const* call);

inline void check(CUresult result, char const* call) {
  if (result != CUDA_SUCCESS) fail(result, call);
}

/// The context that the CUDA runtime uses on a device; made if it is not there yet, and kept to the process's end.
[[nodiscard]] CUcontext primary_context(int device);

/// Makes a device the calling thread's for a while. Unlike cudaSetDevice it leaves no trace: a thread that had no
/// context has none afterwards, and one with a context of its own gets that back.
class DeviceGuard {
 public:
  explicit DeviceGuard(CUcontext context);
  explicit DeviceGuard(int device) : DeviceGuard(primary_context(device)) {}
  ~DeviceGuard();
  DeviceGuard(DeviceGuard const&) = delete;
  DeviceGuard& operator=(DeviceGuard const&) = delete;
};

}  // namespace davit::cuda
