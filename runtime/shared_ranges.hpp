// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory from Communicator::allocate: which addresses of which rank lie in it, and where they are mapped here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/segment.hpp"

namespace davit::detail {

/// First page of such a segment, before the bytes handed out.
struct SharedHeader {
  std::uint64_t nonce;
  std::uint32_t dropped;  ///< 1 once the owner has let go of it
};
inline constexpr std::size_t kSharedHeaderBytes = 4096;

class SharedRanges {
 public:
  /// Rank `peer` has `bytes` at its address `there`, behind the header of `mapping` here.
  void add(int peer, std::uint64_t there, std::size_t bytes, Mapping mapping);
  /// Where a block of a rank lies here; null if it lies in no shared memory that is still held by its owner.
  [[nodiscard]] std::byte const* find(int peer, std::uint64_t address, std::uint64_t bytes) const noexcept;
  /// Unmaps what its owners have dropped.
  void sweep() noexcept;

 private:
  struct Range {
    int peer;
    std::uint64_t there;
    std::uint64_t bytes;
    Mapping mapping;
  };
  std::vector<Range> ranges_;
};

}  // namespace davit::detail
