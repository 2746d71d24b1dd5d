// SPDX-License-Identifier: Apache-2.0
/// @file
/// The same layer on one rank alone: no row leaves it, since it can make every expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/moe_layer/experts.hpp"
#include "examples/moe_layer/model.hpp"
#include "examples/moe_layer/row_sum.hpp"
#include "examples/support/expert_map.hpp"

namespace moe {

/// Where a sum is rounded on its way. Bits follow from this, the choices and the rows, and from nothing else.
struct Steps {
  davit::Reduce reduce;
  int reduce_group;        ///< ranks
  davit::Dtype partial;    ///< of what a rank and a group have added
  bool caller_sums;        ///< a rank's own sum is rounded to the rows' dtype first
  ExpertError by_experts;  ///< where they differ, bits are not compared
};
[[nodiscard]] Steps steps_of_davit(Options const& options, int reduce_group, ExpertError const& by_experts);
[[nodiscard]] Steps steps_of_mpi(Options const& options, int ranks, ExpertError const& by_experts);

/// What a comparison found; of all ranks together once reduced.
struct Comparison {
  std::int64_t elements = 0;
  std::int64_t unequal = 0;   ///< whose bits are not those of the reference with the same steps
  std::int64_t too_far = 0;   ///< further from the exact sum than those steps explain, or NaN
  double absolute = 0;        ///< largest distance from the exact sum
  double relative = 0;        ///< the same, by the sum of the terms' sizes
  std::string first_unequal;  ///< on this rank, in words; empty if none
};

class Reference {
 public:
  Reference(Options const& options, int ranks);

  /// Applies the experts that the batch's tokens chose.
  void work_out(Batch const& batch);
  /// Compares `out` [T, H] with the last batch's sums, element by element, and adds to `found`.
  void compare(Batch const& batch, Steps const& steps, std::byte const* out, Comparison& found);
  /// How far from the exact sum `steps` may lead, by the sum of the terms' sizes.
  [[nodiscard]] double tolerance(Steps const& steps) const;

 private:
  void sum(Batch const& batch, std::size_t token, Steps const& steps, std::byte* to);
  void sum_exactly(Batch const& batch, std::size_t token);
  void add_choice(Batch const& batch, std::size_t choice, RowSum& sum) const;

  Options const& options_;
  support::ExpertMap map_;
  Results results_;
  RowSum of_rank_, of_group_, of_token_;
  std::vector<float> row_;
  std::vector<double> exact_, sizes_;  // [H], of one token
};

}  // namespace moe
