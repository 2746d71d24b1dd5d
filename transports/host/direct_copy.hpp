// SPDX-License-Identifier: Apache-2.0
/// @file
/// The direct way: one copy out of a peer's memory instead of two through a slot. Between threads of one process it is
/// a plain copy, between processes process_vm_readv, where the kernel's policy allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace davit::host {

/// Reads other ranks' memory.
class DirectCopy {
 public:
  DirectCopy() = default;
  /// @param pids of each rank; 0 stands for this process.
  explicit DirectCopy(std::vector<int> pids) : pids_(std::move(pids)) {}

  /// Copies up to `bytes` from `address` in rank `peer`'s memory. @returns bytes copied, at least 1 for `bytes` > 0.
  /// @throws PeerError naming the peer where the kernel refuses: its block is not readable, or it is gone.
  std::size_t read(int peer, std::uint64_t address, std::byte* to, std::size_t bytes) const;

 private:
  std::vector<int> pids_;
};

}  // namespace davit::host
