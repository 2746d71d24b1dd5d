// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/matrix.hpp"

#include <algorithm>

namespace moe {
namespace {

/// Adds `rows` rows at once, so that a row of `w` is read once for all of them; the inner loop becomes vector code.
template <std::size_t rows>
void multiply_rows(float const* x, std::size_t m, float const* w, std::size_t n, float* y) {
  std::fill_n(y, rows * n, 0.0F);
  for (std::size_t i = 0; i < m; ++i) {
    float const* const from = w + i * n;
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t row = 0; row < rows; ++row) y[row * n + j] += x[row * m + i] * from[j];
    }
  }
}

}  // namespace

void multiply(std::span<float const> x, std::span<float const> w, std::span<float> y, std::size_t rows) {
  constexpr std::size_t together = 4;
  auto const m = rows > 0 ? x.size() / rows : 0;
  auto const n = rows > 0 ? y.size() / rows : 0;
  std::size_t row = 0;
  for (; row + together <= rows; row += together) {
    multiply_rows<together>(x.data() + row * m, m, w.data(), n, y.data() + row * n);
  }
  for (; row < rows; ++row) multiply_rows<1>(x.data() + row * m, m, w.data(), n, y.data() + row * n);
}

}  // namespace moe
