// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engine on a GPU: each lane is a stream, and one beside it for what is set aside. Copies go to the copy
/// engines, counters to stream memory operations, rows to small kernels. Nothing runs on the host, so there is nothing
/// to progress.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "transports/cuda/driver.hpp"
#include "transports/cuda/handles.hpp"
#include "transports/cuda/index_ring.hpp"
#include "transports/cuda/row_kernels.hpp"
#include "transports/device_backend.hpp"
#include "transports/held.hpp"

namespace davit::cuda {

/// Index arrays are captured at submission; all else that an operation points to must be memory that the device
/// reaches, and stay until idle(). (Pageable memory works for copies, by blocking the submission.)
class CudaEngine final : public DeviceEngine {
 public:
  CudaEngine(int device, DeviceEngineSettings const& settings);
  /// Never hangs: releases what its streams wait for if need be, and waits for that at most ten seconds.
  ~CudaEngine() override;
  CudaEngine(CudaEngine const&) = delete;
  CudaEngine& operator=(CudaEngine const&) = delete;

  void submit(Lane lane, CopyOp const& op) override;
  void submit(Lane lane, ZeroOp const& op) override;
  void submit(Lane lane, RaiseOp const& op) override;
  void submit(Lane lane, HoldOp const& op) override;
  void submit(Lane lane, MoveRowsOp const& op) override;
  void submit(Lane lane, SumRowsOp const& op) override;
  /// @throws UsageError: a GPU fetches nothing from other processes.
  void submit(Lane lane, FetchOp const& op) override;
  [[nodiscard]] bool can_fetch() const noexcept override { return false; }
  void begin_aside(Lane lane) override;
  void end_aside(Lane lane) override;
  void join_aside(Lane lane) override;

  [[nodiscard]] bool submits_whole_calls() const noexcept override { return true; }
  void seal() override;
  /// @returns false. @throws SystemError what the device has met since.
  bool progress() override;
  [[nodiscard]] bool idle() const noexcept override;
  [[nodiscard]] std::optional<Blocked> blocked(Lane lane) const noexcept override;
  void abandon() noexcept override;
  [[nodiscard]] bool run_out() noexcept override;

  void begin_after(CUstream_st* stream) override;
  void end_before(CUstream_st* stream) override;
  void release_holds() noexcept override;
  [[nodiscard]] std::optional<Blocked> held_up(Lane lane) const noexcept override {
    return of(lane).held.first_closed();
  }
  [[nodiscard]] std::uint64_t launches() const noexcept override { return launches_; }

 private:
  /// Memory operations that follow each other in a lane go to the driver together.
  static constexpr std::size_t kMostPending = 64;

  struct Queue {
    Stream main;
    Stream side;
    Event fork;
    Event joined;
    bool is_aside = false;
    bool is_loose = false;  ///< the side has what the main stream does not wait for
    Event sealed;
    std::vector<CUstreamBatchMemOpParams> pending;  ///< of the main stream
    bool is_sealed = true;                          ///< nothing was submitted since the last seal
    mutable bool is_done = true;                    ///< and the sealed event was seen done
    mutable Held held;
  };

  [[nodiscard]] Queue& of(Lane lane) noexcept { return queues_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] Queue const& of(Lane lane) const noexcept { return queues_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] static cudaStream_t stream(Queue const& queue) noexcept {
    return (queue.is_aside ? queue.side : queue.main).get();
  }
  /// The number of the stream that takes a lane's next operation.
  [[nodiscard]] std::size_t number(Lane lane) const noexcept {
    return 2 * static_cast<std::size_t>(lane) + (of(lane).is_aside ? 1 : 0);
  }
  [[nodiscard]] std::array<cudaStream_t, 4> streams() const noexcept;
  /// Ready for the next operation: all that was submitted earlier, to whichever lane, is with the driver. Otherwise one
  /// that blocks the host could keep back an operation that a peer waits for.
  cudaStream_t open(Lane lane);
  void add(Lane lane, CUstreamBatchMemOpParams const& operation);
  void flush(Queue& queue);
  void join(Queue& queue);
  [[nodiscard]] static bool is_done(Queue const& queue);
  void try_everything(std::chrono::milliseconds patience);
  /// As many of an operation's rows from `row` on as a part of the ring takes. @returns the row behind.
  std::size_t sum_some(Lane lane, SumRowsOp const& op, std::size_t row);

  CUcontext context_;
  std::optional<DeviceGuard> entered_;  ///< while the members below are made and destroyed
  std::array<Queue, 2> queues_;
  Event start_;  ///< of begin_after
  IndexRing ring_;
  DeviceMemory scratch_;
  std::atomic<bool> abandoned_{false};
  std::uint64_t launches_ = 0;
};

}  // namespace davit::cuda
