// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/matrix.hpp"

#include <algorithm>

namespace moe {
namespace {

/// to += x[0] * w[0] + ... + x[count - 1] * w[count - 1], one after the other; w[i] are rows of n. Four at a time, so
/// that `to` is read and written less often; vector code, since neither may lie in the other.
void add_products(float const* x, std::size_t count, float const* __restrict w, float* __restrict to, std::size_t n) {
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4, w += 4 * n) {
    for (std::size_t j = 0; j < n; ++j) {
      to[j] = to[j] + x[i] * w[j] + x[i + 1] * w[n + j] + x[i + 2] * w[2 * n + j] + x[i + 3] * w[3 * n + j];
    }
  }
  for (; i < count; ++i, w += n) {
    for (std::size_t j = 0; j < n; ++j) to[j] += x[i] * w[j];
  }
}

}  // namespace

void multiply(std::span<float const> x, std::span<float const> w, std::span<float> y, std::size_t rows) {
  if (rows == 0) return;
  auto const m = x.size() / rows;
  auto const n = y.size() / rows;
  std::ranges::fill(y, 0.0F);
  constexpr std::size_t together = 8;  // rows of w that stay in the nearest cache while all of y passes by
  for (std::size_t i = 0; i < m; i += together) {
    auto const count = std::min(together, m - i);
    for (std::size_t row = 0; row < rows; ++row) {
      add_products(x.data() + row * m + i, count, w.data() + i * n, y.data() + row * n, n);
    }
  }
}

}  // namespace moe
