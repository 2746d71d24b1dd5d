// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a GPU that chunks pass through. Kernels that write and read host memory themselves get in each other's way
/// on the link; copy engines do not, but they want what lies in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/side.hpp"

namespace davit::detail {

class Staging {
 public:
  /// Where a chunk is worth the detour: below this a kernel is done before a copy engine has begun.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  /// Once, before the others. @param bytes of the longest chunk. @throws what the side's pool throws.
  void prepare(Side& side, std::size_t bytes);
  [[nodiscard]] bool is_ready() const noexcept { return memory_ != nullptr; }
  /// Room for what chunk `index` sends, good until that of `index` + 2 is written.
  [[nodiscard]] std::byte* up(std::uint64_t index) const noexcept;
  /// Room for a chunk that comes down and is used aside. Joins what is aside before the room is used again.
  [[nodiscard]] std::byte* next_down(Engine& engine);

 private:
  static constexpr std::size_t kUp = 2;
  static constexpr std::size_t kDown = 8;

  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0;
  std::size_t turns_ = 0;
};

}  // namespace davit::detail
