// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory between guard bytes, filled with what is a NaN in every float type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/support/memory.hpp"

namespace davit::test {

inline constexpr std::byte kUntouched{0xFF};

class Guarded {
 public:
  explicit Guarded(std::size_t bytes, std::byte fill = kUntouched) : bytes_(bytes), memory_(bytes + 2 * kGuard) {
    memory_.write(0, std::vector<std::byte>(memory_.size(), kMark));
    write(std::vector<std::byte>(bytes, fill));
  }

  /// Where its rank keeps buffers: perhaps not to be touched by the host.
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data() + kGuard; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  void write(std::span<std::byte const> data) const { memory_.write(kGuard, data); }
  [[nodiscard]] std::vector<std::byte> read() const { return memory_.read(kGuard, bytes_); }
  /// Whether nothing was written before or behind.
  [[nodiscard]] bool intact() const {
    auto const is_mark = [](std::byte b) { return b == kMark; };
    auto const before = memory_.read(0, kGuard);
    auto const behind = memory_.read(kGuard + bytes_, kGuard);
    return std::all_of(before.begin(), before.end(), is_mark) && std::all_of(behind.begin(), behind.end(), is_mark);
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::byte kMark{0xA5};
  std::size_t bytes_;
  Memory memory_;
};

}  // namespace davit::test
