// SPDX-License-Identifier: Apache-2.0
#include "transports/host/kernels.hpp"

#include <bit>

#include "transports/host/kernels_table.hpp"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace davit::host {
namespace {

KernelTable const& chosen() noexcept {
  static KernelTable const* const widest = []() noexcept {
    for (Variant const variant : {Variant::avx512, Variant::avx2}) {
      if (KernelTable const* const found = table(variant)) return found;
    }
    return &baseline_kernels;
  }();
  return *widest;
}

// Sums must not depend on the calling thread's floating-point mode: programs built with -ffast-math flush denormals,
// and some trap or change the rounding. Reading the mode costs next to nothing; it is written only where it differs.
#ifdef __SSE2__
class DefaultFloatMode {
 public:
  DefaultFloatMode() noexcept : saved_{_mm_getcsr()} {
    if (differs()) _mm_setcsr(default_mode);
  }
  ~DefaultFloatMode() {
    if (differs()) _mm_setcsr(saved_);
  }
  DefaultFloatMode(DefaultFloatMode const&) = delete;
  DefaultFloatMode& operator=(DefaultFloatMode const&) = delete;

 private:
  static constexpr unsigned default_mode = 0x1f80;  // to nearest even, denormals kept, nothing traps
  static constexpr unsigned sticky_flags = 0x3f;
  [[nodiscard]] bool differs() const noexcept { return (saved_ & ~sticky_flags) != default_mode; }

  unsigned saved_;
};
#else
struct DefaultFloatMode {};
#endif

#if defined(__aarch64__) && __GNUC__ < 13
using Half = __fp16;  // g++ 12 has no other name for it there
#else
using Half = _Float16;
#endif

template <class T>
T read(std::byte const* at) noexcept {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

KernelTable const* table(Variant variant) noexcept {
#ifdef DAVIT_KERNELS_X86
  __builtin_cpu_init();
  bool const has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  bool const has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (variant == Variant::avx2) return has_avx2 ? &avx2_kernels : nullptr;
  if (variant == Variant::avx512) return has_avx512 ? &avx512_kernels : nullptr;
#endif
  return variant == Variant::baseline ? &baseline_kernels : nullptr;
}

char const* kernel_variant() noexcept { return chosen().name; }

void move_rows(std::byte* to, std::byte const* from, std::size_t row_bytes, std::span<RowMove const> moves,
               Stores stores) {
  chosen().move_rows(to, from, row_bytes, moves.data(), moves.size(), stores);
}

void sum_row(RowSum const& sum, std::span<Term const> terms, std::byte const* bias, std::byte* out,
             std::size_t columns) {
  [[maybe_unused]] DefaultFloatMode const mode{};
  chosen().sum_row(sum, terms.data(), terms.size(), bias, out, columns);
}

float load_element(Dtype dtype, std::byte const* element) noexcept {
  if (dtype == f32) return read<float>(element);
  if (dtype == f16) return static_cast<float>(read<Half>(element));
  return std::bit_cast<float>(static_cast<std::uint32_t>(read<std::uint16_t>(element)) << 16U);
}

void store_element(Dtype dtype, float value, std::byte* element) noexcept {
  bool const is_nan = value != value;  // the kernels store one NaN only: positive, mantissa full
  if (dtype == f32) {
    auto const bits = is_nan ? 0x7fffffffU : std::bit_cast<std::uint32_t>(value);
    __builtin_memcpy(element, &bits, sizeof bits);
    return;
  }
  std::uint16_t half = 0x7fff;
  if (!is_nan && dtype == f16) half = std::bit_cast<std::uint16_t>(static_cast<Half>(value));
  if (!is_nan && dtype == bf16) {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    half = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
  }
  __builtin_memcpy(element, &half, sizeof half);
}

}  // namespace davit::host
