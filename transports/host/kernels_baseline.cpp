// SPDX-License-Identifier: Apache-2.0
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "transports/host/kernels_move.hpp"
#include "transports/host/kernels_sum.hpp"

namespace davit::host {
namespace {

// f16 by integers: what x86 has before F16C is a library call an element. The smallest normal f16 is 2^-14; its
// denormals are fixed-point numbers, which an addition of a suitable power of two aligns (and rounds) without touching
// f32 denormals.
struct Baseline : Vectors<16> {
  [[gnu::always_inline]] static Floats from_f16(Halves value) {
    Words const word = __builtin_convertvector(value, Words);
    Words const sign = (word & 0x8000u) << 16u;
    Words const magnitude = (word & 0x7fffu) << 13u;
    Ints const order = reinterpret_cast<Ints>(magnitude);  // SSE2 compares signed integers only
    Words const rebias = magnitude + (112u << 23u);
    Words const smallest = Words{} + (113u << 23u);
    Floats const denormal = reinterpret_cast<Floats>(rebias + (1u << 23u)) - reinterpret_cast<Floats>(smallest);
    Words const finite = order < (1 << 23) ? reinterpret_cast<Words>(denormal) : rebias;
    return reinterpret_cast<Floats>((order >= (31 << 23) ? rebias + (112u << 23u) : finite) | sign);
  }

  [[gnu::always_inline]] static Halves to_f16(Floats value) {
    Words const word = reinterpret_cast<Words>(value);
    Words const magnitude = word & 0x7fffffffu;
    Ints const order = reinterpret_cast<Ints>(magnitude);
    Words const half = Words{} + (126u << 23u);  // 0.5f: its last mantissa bit is the last bit of a denormal f16
    Words const denormal =
        reinterpret_cast<Words>(reinterpret_cast<Floats>(magnitude) + reinterpret_cast<Floats>(half)) - half;
    Words const normal =
        (magnitude - (112u << 23u) + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;  // may carry to infinity
    Words const finite = order < (113 << 23) ? denormal : normal;
    Words const special = order > (255 << 23) ? Words{} + 0x7fffu : Words{} + 0x7c00u;
    Words const result = (order >= (143 << 23) ? special : finite) | ((word >> 16u) & 0x8000u);
    return __builtin_convertvector(result, Halves);
  }

#ifdef __SSE2__
  [[gnu::always_inline]] static void stream(std::byte* to, Floats value) {
    _mm_stream_ps(reinterpret_cast<float*>(to), value);
  }
  [[gnu::always_inline]] static void fence() { _mm_sfence(); }
#else
  [[gnu::always_inline]] static void stream(std::byte* to, Floats value) { __builtin_memcpy(to, &value, sizeof value); }
  [[gnu::always_inline]] static void fence() {}
#endif
};

}  // namespace

constinit KernelTable const baseline_kernels{"baseline", MoveKernels<Baseline>::move_rows,
                                             SumKernels<Baseline>::sum_row};

}  // namespace davit::host
