// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda/handles.hpp"

#include <string>

#include "davit/error.hpp"

namespace davit::cuda {
namespace {

bool is_ready(cudaError_t result, char const* call) {
  if (result == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(result, call);
  return true;
}

void check_address(std::byte* host) {
  void* device = nullptr;
  DAVIT_CUDA_CHECK(cudaHostGetDevicePointer(&device, host, 0));
  if (device != host) {
    throw SystemError("davit: the GPU sees pinned host memory at another address than the host; not supported");
  }
}

}  // namespace

Stream::Stream() {
  cudaStream_t made = nullptr;
  DAVIT_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  handle_.reset(made);
}

bool Stream::is_done() const { return is_ready(cudaStreamQuery(get()), "cudaStreamQuery"); }

void Stream::wait() const { DAVIT_CUDA_CHECK(cudaStreamSynchronize(get())); }

Event::Event() {
  cudaEvent_t made = nullptr;
  DAVIT_CUDA_CHECK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  handle_.reset(made);
}

void Event::record(cudaStream_t stream) { DAVIT_CUDA_CHECK(cudaEventRecord(get(), stream)); }

bool Event::is_done() const { return is_ready(cudaEventQuery(get()), "cudaEventQuery"); }

DeviceMemory::DeviceMemory(std::size_t bytes) {
  void* made = nullptr;
  check(cudaMalloc(&made, bytes), ("cudaMalloc of " + std::to_string(bytes) + " bytes").c_str());
  memory_.reset(static_cast<std::byte*>(made));
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  void* made = nullptr;
  check(cudaHostAlloc(&made, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
        ("cudaHostAlloc of " + std::to_string(bytes) + " bytes").c_str());
  memory_.reset(static_cast<std::byte*>(made));
  check_address(memory_.get());
}

HostRegistration::HostRegistration(std::byte* begin, std::size_t bytes) {
  check(cudaHostRegister(begin, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
        ("cudaHostRegister of " + std::to_string(bytes) + " bytes").c_str());
  memory_.reset(begin);
  check_address(begin);
}

}  // namespace davit::cuda
