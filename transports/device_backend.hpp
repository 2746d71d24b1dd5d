// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a communicator needs of GPUs, without saying whose: the CUDA backend is one implementation, the tests' stand-in
/// another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transports/engine.hpp"

struct CUstream_st;  // what a cudaStream_t and a CUstream point to

namespace davit {

/// Where a pointer points to.
enum class MemoryKind : std::uint8_t {
  pageable,  ///< host memory that no GPU can reach, and null
  pinned,    ///< host memory that was allocated by the backend or registered
  managed,
  device
};

struct MemoryPlace {
  MemoryKind kind;
  int device;  ///< of managed and device memory; else -1
};

struct DeviceFacts {
  std::string name;
  std::string pci_address;     ///< "0000:65:00.0", as hwloc and the kernel write it
  std::uint64_t identity = 0;  ///< of the device, or of the part of one, that work shares; equal in all processes
  int major = 0;               ///< of the compute capability
  int minor = 0;
  bool stops_long_kernels = false;   ///< it drives a display: kernels that poll may be killed
  bool reaches_host_memory = false;  ///< mapped host memory, at the host's own addresses
};

/// A place in a stream.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// Whether the stream has passed it, or never will. From any thread.
  [[nodiscard]] virtual bool is_passed() const noexcept = 0;
};

struct DeviceEngineSettings {
  /// Pinned memory for the index arrays of row operations that are still open: 16 bytes a moved row or a term.
  std::size_t index_bytes = std::size_t{8} << 20;
  /// How long a submission waits for room there; unset: somebody else looks after it.
  std::optional<std::chrono::milliseconds> patience = std::chrono::seconds(60);
};

/// An engine whose lanes are streams. One thread at a time, but for what is said to be for any thread.
class DeviceEngine : public Engine {
 public:
  /// What is submitted from now on, to either lane, starts after what `stream` holds now.
  virtual void begin_after(CUstream_st* stream) = 0;
  /// Seals; what is put on `stream` from now on starts after all that was submitted.
  virtual void end_before(CUstream_st* stream) = 0;

  /// From any thread, also while another is stuck in a submission: writes to every counter that the lanes still wait
  /// for the last value that they wait for. Only for communicators that have failed. A live writer may put a smaller
  /// value back, so call it again until the lanes have run out.
  virtual void release_holds() noexcept = 0;
  /// From any thread: the oldest hold of a lane that is not open yet.
  [[nodiscard]] virtual std::optional<Blocked> held_up(Lane lane) const noexcept = 0;
  /// Never waits: what has not run yet will run, once run_out() lets it, on data that nobody will look at. Idle once
  /// that says so.
  void abandon() noexcept override = 0;
  /// After abandon(), from any thread, again and again: releases what the lanes wait for. @returns whether nothing is
  /// left on the device. Until then what operations point to must stay.
  [[nodiscard]] virtual bool run_out() noexcept = 0;
  /// The same until it says so, at most that long.
  [[nodiscard]] bool run_out_within(std::chrono::milliseconds patience) noexcept;

  /// Kernels launched for operations so far. Copies, counters and holds launch none.
  [[nodiscard]] virtual std::uint64_t launches() const noexcept = 0;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  /// Asks the driver, if the process has loaded one. Never loads it, never makes a context, and leaves the program's
  /// pending errors alone. About a microsecond; much less where no driver is loaded.
  [[nodiscard]] virtual MemoryPlace place(void const* pointer) const noexcept = 0;
  /// Whether this machine shows a GPU, without loading a driver.
  [[nodiscard]] virtual bool shows_a_device() const noexcept = 0;
  /// GPUs that the process may use; 0 where there is no driver or no GPU. @throws SystemError where a GPU is there but
  /// cannot be used, for example because the driver is too old: that is not the same as no GPU.
  [[nodiscard]] virtual int device_count() const = 0;
  /// The GPU of the calling thread's context, if the program has chosen one; else -1. Makes no context.
  [[nodiscard]] virtual int current_device_if_chosen() const noexcept = 0;
  /// Whether what is put on a stream goes into a graph instead of running.
  [[nodiscard]] virtual bool is_capturing(CUstream_st* stream) const noexcept = 0;
  /// The GPU of a stream; -1 where that cannot be told.
  [[nodiscard]] virtual int device_of(CUstream_st* stream) const noexcept = 0;
  /// Behind all that a stream of a GPU holds now. @throws SystemError.
  [[nodiscard]] virtual std::unique_ptr<StreamMark> mark(int device, CUstream_st* stream) = 0;
  /// Makes no context. @throws SystemError.
  [[nodiscard]] virtual DeviceFacts facts(int device) const = 0;

  /// Lets all GPUs of this process reach a range of host memory, at the host's addresses, until the last owner is gone.
  /// Ranks that are threads of one process share one registration. Pages must be there: register a segment once all its
  /// parts are reserved. @param memory kept alive by the result; the range begins where it points. @throws SystemError.
  [[nodiscard]] virtual std::shared_ptr<void> register_memory(int device, std::shared_ptr<std::byte> memory,
                                                              std::size_t bytes) = 0;
  /// Memory of a device. @throws SystemError.
  [[nodiscard]] virtual std::shared_ptr<std::byte> device_memory(int device, std::size_t bytes) = 0;
  /// Host memory that all GPUs reach. @throws SystemError.
  [[nodiscard]] virtual std::shared_ptr<std::byte> pinned_memory(int device, std::size_t bytes) = 0;

  /// Makes the device's context if there is none, loads all kernels and tries a stream memory write and wait once, so
  /// that later submissions find everything in place: a first launch behind a pending wait may lock.
  /// @throws SystemError.
  [[nodiscard]] virtual std::unique_ptr<DeviceEngine> make_engine(int device, DeviceEngineSettings const& settings) = 0;
};

}  // namespace davit
