// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stand-in for GPUs, on host memory, so that what davit does with GPUs is tested where there are none. As strict as
/// the real ones where that finds faults: the host cannot touch device memory (it faults), an engine reaches only its
/// own device's memory and what was registered, streams run on threads of their own, and a stream takes only so many
/// operations that have not run. It proves order and logic; visibility and time are for the real ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "transports/device_backend.hpp"

namespace davit::test {

/// Operations in order, on a thread. An operation returns false where it must be tried again.
class StandInStream {
 public:
  using Operation = std::function<bool()>;

  /// @param room operations that may be open; the next submission waits.
  explicit StandInStream(std::size_t room = 1024);
  /// Drops what has not run.
  ~StandInStream();
  StandInStream(StandInStream const&) = delete;
  StandInStream& operator=(StandInStream const&) = delete;

  void submit(Operation operation);
  /// A flag that is raised once all that was submitted has run.
  [[nodiscard]] std::shared_ptr<std::atomic<bool>> record();
  void wait_for(std::shared_ptr<std::atomic<bool>> event);
  [[nodiscard]] bool idle() const noexcept { return open_.load(std::memory_order_acquire) == 0; }
  /// Waits until all has run, at most that long.
  [[nodiscard]] bool drain(std::chrono::milliseconds patience = std::chrono::seconds(20)) const;

  int device;             ///< that was chosen where it was made; -1: none
  bool captures = false;  ///< set by tests of what is refused then
  [[nodiscard]] CUstream_st* handle() noexcept { return reinterpret_cast<CUstream_st*>(this); }
  [[nodiscard]] static StandInStream& of(CUstream_st* handle) { return *reinterpret_cast<StandInStream*>(handle); }

 private:
  struct State;
  std::atomic<std::size_t> open_{0};
  std::unique_ptr<State> state_;
};

class StandIn final : public DeviceBackend {
 public:
  static constexpr int kDevices = 8;

  [[nodiscard]] static StandIn& of_process();

  [[nodiscard]] MemoryPlace place(void const* pointer) const noexcept override;
  [[nodiscard]] bool shows_a_device() const noexcept override { return true; }
  [[nodiscard]] int device_count() const override { return kDevices; }
  [[nodiscard]] int current_device_if_chosen() const noexcept override;
  [[nodiscard]] bool is_capturing(CUstream_st* stream) const noexcept override {
    return StandInStream::of(stream).captures;
  }
  [[nodiscard]] int device_of(CUstream_st* stream) const noexcept override { return StandInStream::of(stream).device; }
  [[nodiscard]] std::unique_ptr<StreamMark> mark(int device, CUstream_st* stream) override;
  [[nodiscard]] DeviceFacts facts(int device) const override;
  [[nodiscard]] std::shared_ptr<void> register_memory(int device, std::shared_ptr<std::byte> memory,
                                                      std::size_t bytes) override;
  [[nodiscard]] std::shared_ptr<std::byte> device_memory(int device, std::size_t bytes) override;
  [[nodiscard]] std::shared_ptr<std::byte> pinned_memory(int device, std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<DeviceEngine> make_engine(int device, DeviceEngineSettings const& settings) override;

  /// Makes a device the calling thread's current one; -1: none.
  static void choose(int device) noexcept;
  /// Where the host reaches memory of a device; other memory as it is.
  [[nodiscard]] std::byte* seen_by_host(void const* memory) const noexcept;
  /// Aborts unless a device reaches all of a range.
  void check_reach(int device, void const* memory, std::size_t bytes) const;

 private:
  StandIn();
  /// Memory of one device: a range that faults, and the same pages where they can be touched.
  struct Arena {
    std::byte* faulting = nullptr;
    std::byte* touchable = nullptr;
    std::map<std::size_t, std::size_t> free{};  ///< by offset
  };
  [[nodiscard]] int device_of(void const* memory) const noexcept;
  void give_back(int device, std::size_t offset, std::size_t bytes);
  void forget(std::byte* begin);

  mutable std::mutex mutex_;
  Arena arenas_[kDevices];
  struct Range {
    std::size_t bytes;
    int users;
  };
  std::map<std::byte const*, Range> registered_;
};

}  // namespace davit::test
