// SPDX-License-Identifier: Apache-2.0
/// @file
/// What dispatch and combine must give, said as plainly as possible: loops over all ranks' tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/moe/batch.hpp"

namespace davit::test {

/// Rank that holds an expert, and the first expert that a rank holds: blocks, the first E mod R ranks one more.
[[nodiscard]] int holder(Batch const& batch, std::int64_t expert);
[[nodiscard]] std::int64_t first_held(Batch const& batch, int rank);
[[nodiscard]] std::int64_t count_held(Batch const& batch, int rank);

/// A choice of a token, after the same expert twice was merged.
struct Choice {
  std::int64_t expert;
  std::int64_t k;
  float weight;
};
/// In order of k.
[[nodiscard]] std::vector<Choice> choices(Batch const& batch, int source, std::int64_t token);
[[nodiscard]] std::vector<Choice> choices_here(Batch const& batch, int source, std::int64_t token, int rank);

/// A row of a receive layout.
struct ReferenceRow {
  int source = -1;  ///< -1: padding, or a place that nobody fills
  std::int64_t token = -1;
  std::int64_t expert = -1;  ///< global; -1 in by_source
};
struct ReferenceDispatch {
  std::vector<ReferenceRow> rows{};
  std::vector<std::int64_t> counts{}, expert_counts{}, padded_counts{}, expert_offsets{}, source_counts{};
};
[[nodiscard]] ReferenceDispatch reference_dispatch(Batch const& batch, int rank, Layout layout, std::int64_t alignment);

/// What combine is asked for.
struct Sum {
  Layout layout = Layout::by_expert;
  Weighting weighting = Weighting::at_combine;
  Reduce reduce = Reduce::grouped;
  Dtype out = f32;
  bool bias = false;
};
/// The row that a caller gives to combine for a token in by_source: its own experts' rows, weighted and added in f32, k
/// rising, rounded to the group's dtype.
void fill_caller_row(Batch const& batch, int rank, int source, std::int64_t token, std::span<std::byte> row);
/// [T, H] of `sum.out`.
[[nodiscard]] std::vector<std::byte> reference_combine(Batch const& batch, int rank, Sum const& sum);

/// Rows that must cross links, of dispatch and of combine (grouped or by_k), at one rank.
struct Crossings {
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  bool operator==(Crossings const&) const = default;
};
[[nodiscard]] Crossings dispatch_crossings(Batch const& batch, int rank);
[[nodiscard]] Crossings combine_crossings(Batch const& batch, int rank, Reduce reduce);

}  // namespace davit::test
