// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sum of rows as davit makes it: in f32, product and sum rounded apart, the first term starts it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "davit/dtype.hpp"
#include "examples/moe_layer/rows.hpp"

namespace moe {

class RowSum {
 public:
  explicit RowSum(std::int64_t columns)
      : sum_(static_cast<std::size_t>(columns)), term_(static_cast<std::size_t>(columns)) {}

  void clear() noexcept { empty_ = true; }
  [[nodiscard]] bool empty() const noexcept { return empty_; }

  /// Adds weight * row.
  void add(davit::Dtype dtype, std::byte const* row, float weight) {
    widen(dtype, row, term_);
    for (auto& value : term_) value *= weight;
    add(term_);
  }
  /// Adds what another sum has come to.
  void add(RowSum const& other) {
    if (!other.empty_) add(other.sum_);
  }

  void round(davit::Dtype dtype) { round_to(dtype, sum_); }
  /// Rounded; zeros where nothing was added.
  void store(davit::Dtype dtype, std::byte* to) {
    if (empty_) std::fill(sum_.begin(), sum_.end(), 0.0F);
    narrow(dtype, sum_, to);
  }

 private:
  void add(std::span<float const> row) {
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] = empty_ ? row[i] : sum_[i] + row[i];
    empty_ = false;
  }

  std::vector<float> sum_;
  std::vector<float> term_;
  bool empty_ = true;
};

}  // namespace moe
