// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/matrix.hpp"

#include <algorithm>

namespace moe {
namespace {

/// to += factor * from. It becomes vector code since neither may lie in the other.
void add_scaled(float factor, float const* __restrict from, float* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace

void multiply(std::span<float const> x, std::span<float const> w, std::span<float> y, std::size_t rows) {
  if (rows == 0) return;
  auto const m = x.size() / rows;
  auto const n = y.size() / rows;
  std::ranges::fill(y, 0.0F);
  constexpr std::size_t together = 4;  // rows of y that stay in the nearest cache while all of w passes by
  for (std::size_t first = 0; first < rows; first += together) {
    auto const last = std::min(rows, first + together);
    for (std::size_t i = 0; i < m; ++i) {
      for (auto row = first; row < last; ++row) add_scaled(x[row * m + i], w.data() + i * n, y.data() + row * n, n);
    }
  }
}

}  // namespace moe
