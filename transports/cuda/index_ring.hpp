// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where row kernels find their index arrays: a ring in pinned memory that kernels read as it lies. Arrays are copied
/// there at submission, so that the submitter's own may change at once.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

#include "transports/cuda/handles.hpp"
#include "transports/engine.hpp"

namespace davit::cuda {

/// The ring is cut into parts. When a part is full, an event on each stream that used it marks its end, and it is
/// filled again once these are done: two events a part, not one an operation.
class IndexRing {
 public:
  static constexpr std::size_t kStreams = 4;

  /// @param closed tells what a lane waits for, for the message of a wait that takes too long.
  IndexRing(std::size_t bytes, std::optional<std::chrono::milliseconds> patience,
            std::array<cudaStream_t, kStreams> const& streams, std::function<std::optional<Blocked>()> closed);

  /// The most bytes of one array; longer ones must be cut.
  [[nodiscard]] std::size_t part_bytes() const noexcept { return part_bytes_; }

  /// Room for an array whose kernel is launched on one of the streams before the next call. Where the ring is full it
  /// waits for operations submitted earlier, which by the order of submission need none that comes later.
  /// @throws TimeoutError after the patience, if there is one.
  [[nodiscard]] std::byte* take(std::size_t stream, std::size_t bytes);

  /// Never frees it: kernels that could not be stopped may still read.
  void leak() noexcept { memory_.leak(); }

 private:
  static constexpr std::size_t kParts = 8;
  struct Part {
    std::array<Event, kStreams> last;
  };

  void turn();

  std::size_t part_bytes_;
  std::optional<std::chrono::milliseconds> patience_;
  std::array<cudaStream_t, kStreams> streams_;
  std::function<std::optional<Blocked>()> closed_;
  PinnedMemory memory_;
  std::array<Part, kParts> parts_;
  std::size_t part_ = 0;
  std::size_t used_ = 0;
  std::array<bool, kStreams> used_by_{};  ///< the current part
};

}  // namespace davit::cuda
