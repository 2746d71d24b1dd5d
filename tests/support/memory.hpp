// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where tests keep the buffers that they give to davit. DAVIT_TEST_MEMORY=host (default), device: every rank's on a
/// GPU, or mixed: those of every second rank. The GPU is a stand-in unless the program has set another.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "transports/device_backend.hpp"

namespace davit::test {

/// A stream of a rank's GPU.
class TestStream {
 public:
  virtual ~TestStream() = default;
  [[nodiscard]] virtual CUstream_st* handle() = 0;
  /// In stream order: writes to the GPU; lets time pass.
  virtual void write(std::byte* to, std::vector<std::byte> data) = 0;
  virtual void pass(std::chrono::milliseconds time) = 0;
  /// Waits until all has run, at most some 20 seconds.
  [[nodiscard]] virtual bool drain() = 0;
};

/// What tests need of GPUs.
class TestDevice {
 public:
  virtual ~TestDevice() = default;
  [[nodiscard]] virtual DeviceBackend& backend() = 0;
  /// Makes a GPU current for the calling thread, which plays a rank.
  virtual void choose(int rank) = 0;
  [[nodiscard]] virtual int chosen() const = 0;
  virtual void write(std::byte* to, std::span<std::byte const> data) = 0;
  virtual void read(std::span<std::byte> data, std::byte const* from) = 0;
  [[nodiscard]] virtual std::unique_ptr<TestStream> make_stream() = 0;
};

/// Instead of the stand-in; it must stay.
void set_test_device(TestDevice& device) noexcept;
[[nodiscard]] TestDevice& test_device();

/// Every rank's buffers are on a GPU from now on, whatever the environment says.
void keep_on_devices() noexcept;
/// GPUs for the communicators of tests; davit's own where buffers are on the host.
[[nodiscard]] DeviceBackend* test_backend();
/// The calling thread plays this rank from now on.
void enter_rank(int rank);
/// Whether the calling thread's rank keeps its buffers on a GPU.
[[nodiscard]] bool is_on_device();
/// Whether any rank does; whether some do and some do not.
[[nodiscard]] bool any_on_device();
[[nodiscard]] bool is_mixed();

/// A buffer where the calling thread's rank keeps them.
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  explicit Memory(std::span<std::byte const> content);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  void write(std::size_t offset, std::span<std::byte const> data) const;
  [[nodiscard]] std::vector<std::byte> read(std::size_t offset, std::size_t bytes) const;

 private:
  std::size_t bytes_;
  bool on_device_;
  std::shared_ptr<std::byte> memory_;
};

/// What lies at a pointer that davit gave, for example Received::data().
[[nodiscard]] std::vector<std::byte> contents(void const* memory, std::size_t bytes);

/// Any vector's bytes.
template <class T>
[[nodiscard]] std::span<std::byte const> bytes_of(std::vector<T> const& values) {
  return std::as_bytes(std::span<T const>(values));
}

}  // namespace davit::test
