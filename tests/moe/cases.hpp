// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the lettered cases share: rows whose numbers are exact in bf16, and experts that give back what they get.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/moe/player.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {

/// Column 0 tells source and token where there are few tokens; the columns after it tell them in parts.
inline float case_element(std::int64_t most_tokens, int source, std::int64_t token, std::int64_t column) {
  switch (column) {
    case 0:
      return static_cast<float>(most_tokens <= 16 ? 16 * source + token + 1 : token % 256);
    case 1:
      return static_cast<float>(source);
    case 2:
      return static_cast<float>(token % 256);
    case 3:
      return static_cast<float>(token / 256);
    default:
      return static_cast<float>(column % 64);
  }
}

/// A batch of such rows; see chosen_batch.
inline Batch case_batch(int ranks, ExpertGroupOptions const& options, std::vector<std::int64_t> const& tokens,
                        std::vector<float> const& weights,
                        std::function<std::vector<std::int64_t>(int, std::int64_t)> const& choose) {
  auto batch = chosen_batch(ranks, options, tokens, weights, choose);
  auto const most = *std::max_element(tokens.begin(), tokens.end());
  batch.x = [most](int source, std::int64_t token, std::int64_t column) {
    return case_element(most, source, token, column);
  };
  batch.identity = true;
  return batch;
}

/// Dispatches by expert, gives the received rows to combine as they are, checks both. @returns the group's dtype, [T,
/// H].
std::vector<std::byte> exchange(Player const& player, Routing& routing, DispatchWish const& wish = {});

/// Fails the test unless `out` is `factor` times x, exactly.
void expect_scaled(Player const& player, std::vector<std::byte> const& out, float factor);

/// A communicator and a group a rank; `play` is followed by an ordinary batch.
void play_case(Batch const& batch, Making const& making, std::function<void(Player const&, Communicator&)> const& play);
inline void play_case(Batch const& batch, std::function<void(Player const&, Communicator&)> const& play) {
  play_case(batch, {}, play);
}

/// Counts as a list, for comparison.
inline std::vector<std::int64_t> listed(std::span<std::int64_t const> counts) { return {counts.begin(), counts.end()}; }

}  // namespace davit::test
