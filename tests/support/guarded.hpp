// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory between guard bytes, filled with what is a NaN in every float type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace davit::test {

inline constexpr std::byte kUntouched{0xFF};

class Guarded {
 public:
  explicit Guarded(std::size_t bytes, std::byte fill = kUntouched) : memory_(bytes + 2 * kGuard, kMark), bytes_(bytes) {
    std::fill_n(data(), bytes, fill);
  }

  [[nodiscard]] std::byte* data() noexcept { return memory_.data() + kGuard; }
  [[nodiscard]] std::byte const* data() const noexcept { return memory_.data() + kGuard; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data(), bytes_}; }
  [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return {data(), bytes_}; }
  /// Whether nothing was written before or behind.
  [[nodiscard]] bool intact() const noexcept {
    auto const is_mark = [](std::byte b) { return b == kMark; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_mark) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), is_mark);
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 4096;
  static constexpr std::byte kMark{0xA5};
  std::vector<std::byte> memory_;
  std::size_t bytes_;
};

}  // namespace davit::test
