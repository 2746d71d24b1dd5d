// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a GPU that chunks pass through. Kernels that write and read host memory themselves get in each other's way
/// on the link; copy engines do not, but they want what lies in one piece.
#pragma once

#include <array>
#include <cstddef>
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
  /// Begins a piece in a lane. @returns room for it: two take turns, as two pieces of a lane may overlap.
  [[nodiscard]] std::byte* next(Side& side, Lane lane);

 private:
  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0;
  std::array<std::size_t, 2> turns_{};  ///< by lane
};

}  // namespace davit::detail
