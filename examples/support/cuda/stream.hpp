// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stream that a program waits for with a deadline, and this rank's GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "davit/communicator.hpp"
#include "davit/stream.hpp"
#include "examples/support/world.hpp"
#include "transports/cuda/handles.hpp"

namespace support {

/// Collective: makes the GPU that davit advises current and prepares `comm` on it. @returns its number.
/// @throws Failure (usage) where a rank has none.
int choose_gpu(World const& world, davit::Communicator& comm);

/// Collective: two ranks that are on one GPU, if any are.
[[nodiscard]] std::optional<std::pair<int, int>> sharing_ranks(World const& world, int device);
/// Collective. @throws Failure (usage) where two ranks are on one GPU: NCCL refuses that, and would say so less
/// clearly.
void require_gpu_a_rank(World const& world, int device, char const* who);

class TimedStream {
 public:
  TimedStream();
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_.get(); }
  [[nodiscard]] davit::Stream handle() const noexcept { return davit::Stream{stream_.get()}; }
  /// Waits for all that it holds, but no longer than DAVIT_TIMEOUT. @throws Failure.
  void wait() const;

  void start();
  /// Waits. @returns microseconds on the stream since start().
  [[nodiscard]] double stop();

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { davit::cuda::ignore(cudaEventDestroy(event)); }
  };
  using TimedEvent = std::unique_ptr<CUevent_st, Destroy>;
  [[nodiscard]] static TimedEvent make_event();

  davit::cuda::Stream stream_;
  TimedEvent begin_, end_;
};

/// Memory of the current GPU that its users share; never empty.
[[nodiscard]] std::shared_ptr<std::byte> device_memory(std::size_t bytes);
/// The same on the host, reachable for the GPU.
[[nodiscard]] std::shared_ptr<std::byte> pinned_memory(std::size_t bytes);

/// Enqueues a copy, whichever way; of no bytes: nothing.
void copy(cudaStream_t stream, void* to, void const* from, std::size_t bytes);

}  // namespace support
