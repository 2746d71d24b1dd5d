// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "transports/host/kernels_move.hpp"
#include "transports/host/kernels_sum.hpp"

namespace davit::host {
namespace {

struct Avx512 : Vectors<64> {
  [[gnu::always_inline]] static Floats from_f16(Halves value) {
    return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(value));
  }
  [[gnu::always_inline]] static Halves to_f16(Floats value) {
    return reinterpret_cast<Halves>(_mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, Floats value) {
    _mm512_stream_ps(reinterpret_cast<float*>(to), value);
  }
  [[gnu::always_inline]] static void fence() { _mm_sfence(); }
};

}  // namespace

constinit KernelTable const avx512_kernels{"avx512", MoveKernels<Avx512>::move_rows, SumKernels<Avx512>::sum_row};

}  // namespace davit::host
