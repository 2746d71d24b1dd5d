// SPDX-License-Identifier: Apache-2.0
// What route works out once the choices are known: who goes where, and which rows make up which sum.
#include <numeric>

#include "examples/support/moe_recipe.hpp"

namespace support {

MoeRecipe::Choices MoeRecipe::choices_at(Buffer const& buffer, std::int64_t pair) const {
  auto* const at = buffer.data() + static_cast<std::size_t>(pair) * choices_bytes_;
  return {{reinterpret_cast<std::int32_t*>(at), k_}, {reinterpret_cast<float*>(at) + k_, k_}};
}

bool MoeRecipe::is_own(std::int64_t taken_pair) const {
  return taken_pair >= taken_.places[me_] && taken_pair < taken_.places[me_] + taken_.counts[me_];
}

std::byte* MoeRecipe::row_of(CarrierMemory const& memory, std::int64_t row) const {
  return memory.data() + static_cast<std::size_t>(row) * row_bytes_;
}

void MoeRecipe::plan_expansion() {
  outgoing_.ensure(*carrier_, static_cast<std::size_t>(sent_total_) * row_bytes_);
  incoming_.ensure(*carrier_, static_cast<std::size_t>(taken_total_) * row_bytes_);
  expert_counts_.assign(static_cast<std::size_t>(map_.count(static_cast<int>(me_))), 0);
  for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
    for (auto const id : choices_at(taken_choices_, pair).ids) {
      if (id >= 0) ++expert_counts_[static_cast<std::size_t>(id)];
    }
  }
  std::vector<std::int64_t> next(expert_counts_.size());
  std::exclusive_scan(expert_counts_.begin(), expert_counts_.end(), next.begin(), std::int64_t{0});
  received_rows_ = std::accumulate(expert_counts_.begin(), expert_counts_.end(), std::int64_t{0});
  received_.ensure(*carrier_, static_cast<std::size_t>(received_rows_) * row_bytes_);

  std::vector<std::int64_t> own_tokens;
  for (auto const& pair : pairs_) {
    if (pair.rank == me_) own_tokens.push_back(pair.token);
  }
  packs_.to_bytes = outgoing_.bytes();
  for (auto* const list : {&expansions_, &own_expansions_}) {
    list->moves.clear();
    list->to_bytes = static_cast<std::size_t>(received_rows_) * row_bytes_;
  }
  expert_rows_.assign(static_cast<std::size_t>(taken_total_) * k_, -1);
  for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
    bool const own = is_own(pair);
    auto const from = own ? own_tokens[static_cast<std::size_t>(pair - taken_.places[me_])] : pair;
    auto const ids = choices_at(taken_choices_, pair).ids;
    for (std::size_t k = 0; k < k_; ++k) {
      if (ids[k] < 0) continue;
      auto const row = next[static_cast<std::size_t>(ids[k])]++;
      expert_rows_[static_cast<std::size_t>(pair) * k_ + k] = row;
      (own ? own_expansions_ : expansions_).moves.push_back({from, row});
    }
  }
}

/// What this rank's experts made of one taken pair, weighted, k rising: a group.
void MoeRecipe::add_own_terms(SumList& list, std::int64_t taken_pair) {
  auto const weights = choices_at(taken_choices_, taken_pair).weights;
  for (std::size_t k = 0; k < k_; ++k) {
    auto const row = expert_rows_[static_cast<std::size_t>(taken_pair) * k_ + k];
    if (row >= 0) list.terms.push_back({row_of(received_, row), weights[k], 0});
  }
  list.terms.back().closes_group = 1;  // a pair is there because of a choice
}

void MoeRecipe::plan_partial_sums() {
  sums_before_own_.clear();
  sums_behind_own_.clear();
  for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
    if (is_own(pair)) continue;
    auto& list = pair < taken_.places[me_] ? sums_before_own_ : sums_behind_own_;
    add_own_terms(list, pair);
    list.end_sum();
  }
}

/// The owner adds the ranks' parts, rank rising, which is the order of a token's pairs. Its own part is rounded as the
/// others are, but never stored.
void MoeRecipe::plan_final_sums() {
  final_sums_.clear();
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    auto const& [token, rank, number] = pairs_[i];
    if (rank == me_) {
      add_own_terms(final_sums_, number - sent_.places[me_] + taken_.places[me_]);
    } else {
      final_sums_.terms.push_back({row_of(outgoing_, number), 1.0F, 1});
    }
    if (i + 1 == pairs_.size() || pairs_[i + 1].token != token) final_sums_.end_sum();
  }
}

}  // namespace support
