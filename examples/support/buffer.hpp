// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host memory that a program's measurements use.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "examples/support/failure.hpp"

namespace support {

/// Bytes that begin on a page, every page touched before anyone times it. Grows, never shrinks.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) { ensure(bytes); }

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Makes it at least `bytes` long; contents and addresses are lost where it grows.
  void ensure(std::size_t bytes) {
    constexpr std::size_t page = 4096;
    if (bytes <= bytes_) return;
    data_.reset();
    bytes_ = 0;
    auto const whole = (bytes + page - 1) / page * page;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(page, whole)));
    if (data_ == nullptr) throw Failure(Exit::failed, "no memory for a buffer of " + std::to_string(bytes) + " bytes");
    bytes_ = bytes;
    std::memset(data_.get(), 0xff, bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept { std::free(data); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace support
