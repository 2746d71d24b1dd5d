// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counters in shared memory: 32 bits (what stream memory operations compare), one writer, one waiter, never reset,
/// compared as a wrapping difference. They are plain words in a segment; these functions are the only way to touch
/// them.
#pragma once

#include <atomic>
#include <cstdint>

namespace davit {

using Counter = std::uint32_t;

/// What the writer did before its raise is visible after this read has returned the raised value.
[[nodiscard]] inline std::uint32_t load_acquire(Counter const& counter) noexcept {
  return std::atomic_ref<Counter>(const_cast<Counter&>(counter)).load(std::memory_order_acquire);
}

inline void store_release(Counter& counter, std::uint32_t value) noexcept {
  std::atomic_ref<Counter>(counter).store(value, std::memory_order_release);
}

/// For words of two ranks that must not both miss each other's store (Dekker): store the own, then load the other's.
inline void store_in_order(Counter& counter, std::uint32_t value) noexcept {
  std::atomic_ref<Counter>(counter).store(value, std::memory_order_seq_cst);
}
[[nodiscard]] inline std::uint32_t load_in_order(Counter const& counter) noexcept {
  return std::atomic_ref<Counter>(const_cast<Counter&>(counter)).load(std::memory_order_seq_cst);
}

/// Whether `value` has come to `target`; right as long as the two are less than 2^31 apart.
[[nodiscard]] constexpr bool has_reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

}  // namespace davit
