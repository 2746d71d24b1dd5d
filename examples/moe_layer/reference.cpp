// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "examples/moe_layer/rows.hpp"

namespace moe {

Steps steps_of_davit(Options const& options, int reduce_group, ExpertError const& by_experts) {
  return {.reduce = options.reduce,
          .reduce_group = reduce_group,
          .partial = options.partial_dtype.value_or(options.dtype),
          .caller_sums = options.layout == davit::Layout::by_source,
          .by_experts = by_experts};
}

Steps steps_of_mpi(Options const& options, int ranks, ExpertError const& by_experts) {
  return {.reduce = davit::Reduce::grouped,
          .reduce_group = ranks,
          .partial = options.dtype,
          .caller_sums = false,
          .by_experts = by_experts};
}

Reference::Reference(Options const& options, int ranks)
    : options_(options),
      map_(options.experts, ranks),
      of_rank_(options.hidden),
      of_group_(options.hidden),
      of_token_(options.hidden),
      row_(static_cast<std::size_t>(options.hidden)),
      exact_(row_.size()),
      sizes_(row_.size()) {}

void Reference::work_out(Batch const& batch) {
  // Experts are made one by one: all of them together may be more than one rank has memory for.
  results_ = run_chosen(batch.rows.data(), options_.row_bytes(), batch.ids, options_.top_k, options_.experts,
                        [this](std::int64_t expert, std::byte* rows, std::int64_t count) {
                          if (count > 0) Expert(options_, expert).apply(rows, count);
                        });
}

void Reference::add_choice(Batch const& batch, std::size_t choice, RowSum& sum) const {
  auto const result = static_cast<std::size_t>(results_.at[choice]);
  sum.add(options_.dtype, results_.rows.data() + result * options_.row_bytes(), batch.weights[choice]);
}

void Reference::sum(Batch const& batch, std::size_t token, Steps const& steps, std::byte* to) {
  auto const k = static_cast<std::size_t>(options_.top_k);
  of_token_.clear();
  if (steps.reduce == davit::Reduce::by_k) {
    for (auto choice = token * k; choice < (token + 1) * k; ++choice) add_choice(batch, choice, of_token_);
    of_token_.store(options_.dtype, to);
    return;
  }
  for (int first = 0; first < map_.ranks(); first += steps.reduce_group) {
    of_group_.clear();
    for (int rank = first; rank < std::min(first + steps.reduce_group, map_.ranks()); ++rank) {
      of_rank_.clear();
      for (auto choice = token * k; choice < (token + 1) * k; ++choice) {
        if (map_.owner(batch.ids[choice]) == rank) add_choice(batch, choice, of_rank_);
      }
      if (steps.caller_sums) of_rank_.round(options_.dtype);
      of_rank_.round(steps.partial);
      of_group_.add(of_rank_);
    }
    of_group_.round(steps.partial);
    of_token_.add(of_group_);
  }
  of_token_.store(options_.dtype, to);
}

/// In f64, without any rounding between.
void Reference::sum_exactly(Batch const& batch, std::size_t token) {
  auto const k = static_cast<std::size_t>(options_.top_k);
  std::ranges::fill(exact_, 0.0);
  std::ranges::fill(sizes_, 0.0);
  for (auto choice = token * k; choice < (token + 1) * k; ++choice) {
    auto const result = static_cast<std::size_t>(results_.at[choice]);
    widen(options_.dtype, results_.rows.data() + result * options_.row_bytes(), row_);
    for (std::size_t i = 0; i < row_.size(); ++i) {
      auto const term = static_cast<double>(batch.weights[choice]) * static_cast<double>(row_[i]);
      exact_[i] += term;
      sizes_[i] += std::abs(term);
    }
  }
}

double Reference::tolerance(Steps const& steps) const {
  auto const final_rounding = round_off(options_.dtype);
  auto const inside = static_cast<double>(options_.top_k + map_.ranks() + 1) * round_off(davit::f32) +
                      steps.by_experts.roundings * round_off(options_.dtype);
  if (steps.reduce == davit::Reduce::by_k) return final_rounding + inside;
  return final_rounding + 2 * round_off(steps.partial) + (steps.caller_sums ? final_rounding : 0) + inside;
}

void Reference::compare(Batch const& batch, Steps const& steps, std::byte const* out, Comparison& found) {
  auto const allowed = 1.01 * tolerance(steps);  // the products of two round-offs, left out there
  auto const coarser = round_off(steps.partial) > round_off(options_.dtype) ? steps.partial : options_.dtype;
  auto const least = std::max(least_normal(coarser), least_normal(options_.dtype)) * (map_.ranks() + 2);
  auto const element = size_of(options_.dtype);
  std::vector<std::byte> expected(options_.row_bytes());
  for (std::size_t token = 0; token < static_cast<std::size_t>(batch.tokens); ++token) {
    auto const* const row = out + token * options_.row_bytes();
    sum(batch, token, steps, expected.data());
    sum_exactly(batch, token);
    widen(options_.dtype, row, row_);
    for (std::size_t i = 0; i < row_.size(); ++i) {
      ++found.elements;
      auto const error = std::abs(static_cast<double>(row_[i]) - exact_[i]);
      if (!(error <= allowed * std::max(sizes_[i], least) + steps.by_experts.absolute)) ++found.too_far;
      found.absolute = std::max(found.absolute, error);
      if (sizes_[i] > least) found.relative = std::max(found.relative, error / sizes_[i]);
      if (steps.by_experts.differs) continue;
      if (std::memcmp(row + i * element, expected.data() + i * element, element) == 0) continue;
      ++found.unequal;
      if (!found.first_unequal.empty()) continue;
      float must_be = 0;
      widen(options_.dtype, expected.data() + i * element, {&must_be, 1});
      std::array<char, 128> text{};
      std::snprintf(text.data(), text.size(), "token %zu, column %zu is %.9g, must be %.9g", token, i,
                    static_cast<double>(row_[i]), static_cast<double>(must_be));
      found.first_unequal = text.data();
    }
  }
}

}  // namespace moe
