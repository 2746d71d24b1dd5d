// SPDX-License-Identifier: Apache-2.0
// Which GPUs there are.
#include <dlfcn.h>
#include <glob.h>

#include <cctype>

#include "davit/error.hpp"
#include "transports/cuda/backend.hpp"
#include "transports/cuda/check.hpp"
#include "transports/cuda/cuda_backend.hpp"
#include "transports/cuda/cuda_engine.hpp"

namespace davit::cuda {
namespace {

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

/// FNV-1a. MIG parts of a GPU share its PCI address, but not this.
std::uint64_t hash_of(cudaUUID_t const& uuid) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (char const byte : uuid.bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

}  // namespace

DeviceBackend& backend() noexcept {
  static auto& instance = *new CudaBackend;
  return instance;
}

/// Device files (dxg: Windows' subsystem for Linux).
bool CudaBackend::shows_a_device() const noexcept {
  for (char const* const pattern : {"/dev/nvidia[0-9]*", "/dev/dxg"}) {
    glob_t found{};
    bool const any = glob(pattern, GLOB_NOSORT, nullptr, &found) == 0;
    globfree(&found);
    if (any) return true;
  }
  return false;
}

int CudaBackend::device_count() const {
  int count = 0;  // a failed call leaves it as it was
  auto const result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  // Without a driver the runtime speaks of one that is too old: only where a GPU shows is that the truth.
  if (result == cudaErrorNoDevice || !shows_a_device() || !has_driver_library()) return 0;
  throw SystemError("davit: there is a GPU, but it cannot be used: cudaGetDeviceCount gave " + text_of(result));
}

bool CudaBackend::is_capturing(CUstream_st* stream) const noexcept {
  auto status = cudaStreamCaptureStatusNone;
  // Refused for the default stream while any other is capturing, which comes to the same here.
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return true;
  }
  return status != cudaStreamCaptureStatusNone;
}

int CudaBackend::device_of(CUstream_st* stream) const noexcept {
  int device = -1;
  if (cudaStreamGetDevice(stream, &device) == cudaSuccess) return device;
  static_cast<void>(cudaGetLastError());
  return -1;
}

DeviceFacts CudaBackend::facts(int device) const {
  DeviceFacts facts;
  char address[32] = {};
  DAVIT_CUDA_CHECK(cudaDeviceGetPCIBusId(address, sizeof address, device));
  cudaDeviceProp properties{};
  DAVIT_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  facts.name = properties.name;
  facts.pci_address = address;
  for (auto& letter : facts.pci_address) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  facts.identity = hash_of(properties.uuid);
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.stops_long_kernels = attribute(device, cudaDevAttrKernelExecTimeout) != 0;
  facts.reaches_host_memory = attribute(device, cudaDevAttrCanMapHostMemory) != 0 &&
                              attribute(device, cudaDevAttrUnifiedAddressing) != 0 &&
                              attribute(device, cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
  return facts;
}

std::unique_ptr<DeviceEngine> CudaBackend::make_engine(int device, DeviceEngineSettings const& settings) {
  auto const of_device = facts(device);
  if (!of_device.reaches_host_memory) {
    throw SystemError("davit: " + of_device.name + " at " + of_device.pci_address +
                      " does not reach host memory at the host's own addresses");
  }
  return std::make_unique<CudaEngine>(device, settings);
}

}  // namespace davit::cuda
