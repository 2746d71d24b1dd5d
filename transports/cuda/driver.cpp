// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda/driver.hpp"

#include <map>
#include <mutex>
#include <string>

#include "davit/error.hpp"
#include "transports/cuda/check.hpp"

namespace davit::cuda {
namespace {

// Types and semantics of this version, whatever the driver's own is.
constexpr unsigned kDriverVersion = 12000;

template <class Function>
void fetch(Function& to, char const* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  check(cudaGetDriverEntryPointByVersion(name, &found, kDriverVersion, cudaEnableDefault, &status), name);
  if (status != cudaDriverEntryPointSuccess || found == nullptr) {
    throw SystemError("davit: the CUDA driver has no " + std::string(name) + "; it is too old");
  }
  to = reinterpret_cast<Function>(found);
}

Driver load() {
  Driver loaded{};
  fetch(loaded.stream_write, "cuStreamWriteValue32");
  fetch(loaded.stream_wait, "cuStreamWaitValue32");
  fetch(loaded.stream_batch, "cuStreamBatchMemOp");
  fetch(loaded.push_context, "cuCtxPushCurrent");
  fetch(loaded.pop_context, "cuCtxPopCurrent");
  fetch(loaded.device_get, "cuDeviceGet");
  fetch(loaded.retain_context, "cuDevicePrimaryCtxRetain");
  fetch(loaded.error_name, "cuGetErrorName");
  return loaded;
}

}  // namespace

Driver const& driver() {
  static Driver const loaded = load();
  return loaded;
}

void fail(CUresult result, char const* call) {
  char const* name = nullptr;
  static_cast<void>(driver().error_name(result, &name));
  throw SystemError("davit: CUDA: " + std::string(call) + " gave " +
                    (name != nullptr ? name : "error " + std::to_string(result)));
}

CUcontext primary_context(int device) {
  static std::mutex mutex;
  static std::map<int, CUcontext> contexts;
  std::lock_guard const lock(mutex);
  auto& context = contexts[device];
  if (context == nullptr) {
    CUdevice handle{};
    check(driver().device_get(&handle, device), "cuDeviceGet");
    check(driver().retain_context(&context, handle), "cuDevicePrimaryCtxRetain");
  }
  return context;
}

DeviceGuard::DeviceGuard(CUcontext context) { check(driver().push_context(context), "cuCtxPushCurrent"); }

DeviceGuard::~DeviceGuard() {
  CUcontext popped{};
  static_cast<void>(driver().pop_context(&popped));
}

}  // namespace davit::cuda
