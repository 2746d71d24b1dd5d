// SPDX-License-Identifier: Apache-2.0
/// @file
/// Owners of CUDA handles and memory. They move and never copy, belong to the device that was current at their making
/// (see DeviceGuard), and their destructors neither throw nor mind a runtime that is gone already. None of these waits
/// for what is still on a stream; memory must outlive the work that uses it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "transports/cuda/check.hpp"

namespace davit::cuda {

/// A stream that does not wait for the default stream, nor that one for it.
class Stream {
 public:
  Stream();
  [[nodiscard]] cudaStream_t get() const noexcept { return handle_.get(); }
  /// Whether all that was put on it has run. @throws SystemError what one of these has met.
  [[nodiscard]] bool is_done() const;
  void wait() const;

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const noexcept { ignore(cudaStreamDestroy(stream)); }
  };
  std::unique_ptr<CUstream_st, Destroy> handle_;
};

/// A point in a stream. No timing.
class Event {
 public:
  Event();
  [[nodiscard]] cudaEvent_t get() const noexcept { return handle_.get(); }
  void record(cudaStream_t stream);
  /// Also true if it was never recorded. @throws SystemError.
  [[nodiscard]] bool is_done() const;

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { ignore(cudaEventDestroy(event)); }
  };
  std::unique_ptr<CUevent_st, Destroy> handle_;
};

/// Memory of the current device.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  [[nodiscard]] std::byte* get() const noexcept { return memory_.get(); }
  /// Leaves the memory to the process's end: for work that could not be stopped.
  void leak() noexcept { static_cast<void>(memory_.release()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { ignore(cudaFree(memory)); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// Host memory that every GPU reaches at the host's address.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  [[nodiscard]] std::byte* get() const noexcept { return memory_.get(); }
  void leak() noexcept { static_cast<void>(memory_.release()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { ignore(cudaFreeHost(memory)); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// Host memory made reachable for every GPU of this process. Registration belongs to a process: each one that maps a
/// segment registers it, whole.
class HostRegistration {
 public:
  /// @throws SystemError also where a GPU would see the memory at another address than the host.
  HostRegistration(std::byte* begin, std::size_t bytes);

 private:
  struct Unregister {
    void operator()(std::byte* memory) const noexcept { ignore(cudaHostUnregister(memory)); }
  };
  std::unique_ptr<std::byte, Unregister> memory_;
};

}  // namespace davit::cuda
