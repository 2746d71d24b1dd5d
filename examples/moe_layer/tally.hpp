// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the choices ask for, counted without davit: the load of each expert, and what must cross a link at least.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/moe_layer/model.hpp"
#include "examples/support/expert_map.hpp"
#include "examples/support/world.hpp"

namespace moe {

struct Tally {
  std::int64_t tokens = 0;
  std::int64_t choices = 0;          ///< (token, expert)
  std::int64_t choices_away = 0;     ///< those of another rank's experts
  std::int64_t tokens_away = 0;      ///< tokens that another rank needs: up once, however many need it
  std::int64_t pairs_away = 0;       ///< (token, other rank): down once for each
  std::int64_t tokens_kept = 0;      ///< tokens with an expert on their own rank
  std::vector<std::int64_t> load{};  ///< rows of each expert
};

/// Adds a batch of rank `rank`.
void count(Batch const& batch, int rank, support::ExpertMap const& map, Tally& tally);
/// Collective: all ranks together.
[[nodiscard]] Tally sum_of(support::World const& world, Tally const& mine);

}  // namespace moe
