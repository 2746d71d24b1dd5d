// SPDX-License-Identifier: Apache-2.0
/// @file
/// Experts at work on rows, however the rows lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "davit/expert_group.hpp"
#include "examples/moe_layer/model.hpp"

namespace moe {

/// The experts that one rank holds.
class LocalExperts {
 public:
  LocalExperts(Options const& options, std::int64_t first, std::int64_t count);

  /// Replaces the rows that a dispatch brought by the experts' results, in place. Where a token has one row for several
  /// experts (by_source), that row becomes their weighted sum.
  void run(davit::Received& received) const;
  /// The same for rows that lie one expert after the other, `counts[e]` for local expert e.
  void run(std::byte* rows, std::span<std::int64_t const> counts) const;

 private:
  void run_slots(davit::Received& received) const;
  void run_shared(davit::Received& received) const;

  Options const& options_;
  std::vector<Expert> experts_;
};

/// What experts made of rows that each chose several of them.
struct Results {
  std::vector<std::byte> rows;   ///< one a choice, one expert after the other
  std::vector<std::int64_t> at;  ///< for each of the choices [rows, K] its result in `rows`; -1: none
};

/// Applies each of `experts` experts to the rows that chose it. `ids` [rows, K]: 0 to experts - 1, or -1.
/// @param apply as Expert::apply, for the expert with that number.
[[nodiscard]] Results run_chosen(
    std::byte const* rows, std::size_t row_bytes, std::span<std::int32_t const> ids, std::int64_t top_k,
    std::int64_t experts, std::function<void(std::int64_t expert, std::byte* rows, std::int64_t count)> const& apply);

}  // namespace moe
