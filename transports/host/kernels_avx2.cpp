// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "transports/host/kernels_move.hpp"
#include "transports/host/kernels_sum.hpp"

namespace davit::host {
namespace {

struct Avx2 : Vectors<32> {
  [[gnu::always_inline]] static Floats from_f16(Halves value) {
    return _mm256_cvtph_ps(reinterpret_cast<__m128i>(value));
  }
  [[gnu::always_inline]] static Halves to_f16(Floats value) {
    return reinterpret_cast<Halves>(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, Floats value) {
    _mm256_stream_ps(reinterpret_cast<float*>(to), value);
  }
  [[gnu::always_inline]] static void fence() { _mm_sfence(); }
};

}  // namespace

constinit KernelTable const avx2_kernels{"avx2", MoveKernels<Avx2>::move_rows, SumKernels<Avx2>::sum_row};

}  // namespace davit::host
