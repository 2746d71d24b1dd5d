// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/tally.hpp"

#include <algorithm>
#include <span>

namespace moe {

void count(Batch const& batch, int rank, support::ExpertMap const& map, Tally& tally) {
  tally.load.resize(static_cast<std::size_t>(map.experts()));
  auto const ids = std::span<std::int32_t const>(batch.ids);
  auto const k = batch.tokens > 0 ? ids.size() / static_cast<std::size_t>(batch.tokens) : 0;
  std::vector<bool> needs(static_cast<std::size_t>(map.ranks()));
  for (std::int64_t token = 0; token < batch.tokens; ++token) {
    needs.assign(needs.size(), false);
    for (auto const id : ids.subspan(static_cast<std::size_t>(token) * k, k)) {
      ++tally.load[static_cast<std::size_t>(id)];
      if (map.owner(id) != rank) ++tally.choices_away;
      needs[static_cast<std::size_t>(map.owner(id))] = true;
    }
    bool const at_home = needs[static_cast<std::size_t>(rank)];
    auto const away = std::ranges::count(needs, true) - (at_home ? 1 : 0);
    tally.tokens_kept += at_home ? 1 : 0;
    tally.tokens_away += away > 0 ? 1 : 0;
    tally.pairs_away += away;
  }
  tally.tokens += batch.tokens;
  tally.choices += static_cast<std::int64_t>(ids.size());
}

Tally sum_of(support::World const& world, Tally const& mine) {
  Tally all = mine;
  for (auto* const number :
       {&all.tokens, &all.choices, &all.choices_away, &all.tokens_away, &all.pairs_away, &all.tokens_kept}) {
    *number = world.sum(*number);
  }
  support::check(MPI_Allreduce(MPI_IN_PLACE, all.load.data(), static_cast<int>(all.load.size()), MPI_INT64_T, MPI_SUM,
                               world.comm()),
                 "MPI_Allreduce");
  return all;
}

}  // namespace moe
