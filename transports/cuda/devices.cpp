// SPDX-License-Identifier: Apache-2.0
// Which GPUs there are.
#include <dlfcn.h>
#include <glob.h>

#include <cctype>

#include "davit/error.hpp"
#include "transports/cuda/check.hpp"
#include "transports/cuda/cuda_backend.hpp"

namespace davit::cuda {
namespace {

/// Whether this machine or container shows a GPU's device file (dxg: Windows' subsystem for Linux).
bool shows_a_gpu() noexcept {
  for (char const* const pattern : {"/dev/nvidia[0-9]*", "/dev/dxg"}) {
    glob_t found{};
    bool const any = glob(pattern, GLOB_NOSORT, nullptr, &found) == 0;
    globfree(&found);
    if (any) return true;
  }
  return false;
}

bool has_driver_library() noexcept {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

int attribute(int device, cudaDeviceAttr name) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

int device_count() {
  int count = 0;  // a failed call leaves it as it was
  auto const result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  // Without a driver the runtime speaks of one that is too old: only where a GPU shows is that the truth.
  if (result == cudaErrorNoDevice || !shows_a_gpu() || !has_driver_library()) return 0;
  throw SystemError("davit: there is a GPU, but it cannot be used: cudaGetDeviceCount gave " + text_of(result));
}

DeviceFacts device_facts(int device) {
  DeviceFacts facts;
  char address[32] = {};
  DAVIT_CUDA_CHECK(cudaDeviceGetPCIBusId(address, sizeof address, device));
  cudaDeviceProp properties{};
  DAVIT_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  facts.name = properties.name;
  facts.pci_address = address;
  for (auto& letter : facts.pci_address) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.stops_long_kernels = attribute(device, cudaDevAttrKernelExecTimeout) != 0;
  facts.reaches_host_memory = attribute(device, cudaDevAttrCanMapHostMemory) != 0 &&
                              attribute(device, cudaDevAttrUnifiedAddressing) != 0 &&
                              attribute(device, cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
  return facts;
}

}  // namespace davit::cuda
