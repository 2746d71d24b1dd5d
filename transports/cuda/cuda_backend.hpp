// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA backend's face, without a CUDA header: what the factory needs to put a communicator on a GPU. The folder is
/// built or not; whoever includes this file must know that it is. Nothing here needs a driver to be linked or loaded:
/// on a machine without one there are simply no devices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transports/engine.hpp"

struct CUstream_st;  // what a cudaStream_t and a CUstream point to

namespace davit::cuda {

/// Where a pointer points to.
enum class MemoryKind : std::uint8_t {
  pageable,  ///< host memory that no GPU can reach, and null
  pinned,    ///< host memory that was allocated by CUDA or registered
  managed,
  device
};

struct MemoryPlace {
  MemoryKind kind;
  int device;  ///< of managed and device memory; else -1
};

/// Asks the driver, if the process has loaded one. Never loads it, never makes a context, and leaves the program's
/// pending CUDA errors alone. About a microsecond.
[[nodiscard]] MemoryPlace memory_place(void const* pointer) noexcept;

/// GPUs that the process may use; 0 where there is no driver or no GPU. @throws SystemError where a GPU is there but
/// cannot be used, for example because the driver is too old: that is not the same as no GPU.
[[nodiscard]] int device_count();

/// The GPU of the calling thread's context, if the program has chosen one; else -1. Makes no context.
[[nodiscard]] int current_device_if_chosen() noexcept;

struct DeviceFacts {
  std::string name;
  std::string pci_address;  ///< "0000:65:00.0", as hwloc and the kernel write it
  int major = 0;            ///< of the compute capability
  int minor = 0;
  bool stops_long_kernels = false;   ///< it drives a display: kernels that poll may be killed
  bool reaches_host_memory = false;  ///< mapped host memory, at the host's own addresses
};

/// Makes no context. @throws SystemError.
[[nodiscard]] DeviceFacts device_facts(int device);

/// Lets all GPUs of this process reach a range of host memory, at the host's addresses, until the last owner is gone.
/// Ranks that are threads of one process share one registration. Pages must be there: register a segment once all its
/// parts are reserved. @param memory kept alive by the result; the range begins where it points. @throws SystemError.
[[nodiscard]] std::shared_ptr<void> register_memory(int device, std::shared_ptr<std::byte> memory, std::size_t bytes);

/// Memory of a device, for scratch. @throws SystemError.
[[nodiscard]] std::shared_ptr<std::byte> device_memory(int device, std::size_t bytes);
/// Host memory that all GPUs reach. @throws SystemError.
[[nodiscard]] std::shared_ptr<std::byte> pinned_memory(int device, std::size_t bytes);

struct EngineSettings {
  /// Pinned memory for the index arrays of row operations that are still open: 16 bytes a moved row or a term.
  std::size_t index_bytes = std::size_t{8} << 20;
  /// How long a submission waits for room there.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

/// An engine whose lanes are streams. One thread at a time, but for release_holds().
class DeviceEngine : public Engine {
 public:
  /// What is submitted from now on, to either lane, starts after what `stream` holds now.
  virtual void begin_after(CUstream_st* stream) = 0;
  /// Seals; what is put on `stream` from now on starts after all that was submitted.
  virtual void end_before(CUstream_st* stream) = 0;

  /// From any thread, also while another is stuck in a submission: writes to every counter that the lanes still wait
  /// for the last value that they wait for. Only for communicators that have failed. A live writer may put a smaller
  /// value back, so call it again until the lanes have run out; abandon() does.
  virtual void release_holds() noexcept = 0;

  /// Kernels launched for operations so far. Copies, counters and holds launch none.
  [[nodiscard]] virtual std::uint64_t launches() const noexcept = 0;
};

/// Makes the device's context if there is none, loads all kernels and tries a stream memory write and wait once, so
/// that later submissions find everything in place: a first launch behind a pending wait may lock. @throws SystemError.
[[nodiscard]] std::unique_ptr<DeviceEngine> make_cuda_engine(int device, EngineSettings const& settings = {});

}  // namespace davit::cuda
