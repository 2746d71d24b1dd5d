// SPDX-License-Identifier: Apache-2.0
// What route works out once the choices are known: who goes where, and which rows make up which sum.
#include <numeric>

#include "examples/support/mpi_moe.hpp"

namespace support {

MpiMoe::Choices MpiMoe::choices_at(Buffer const& buffer, std::int64_t pair) const {
  auto* const at = buffer.data() + static_cast<std::size_t>(pair) * choices_bytes_;
  return {{reinterpret_cast<std::int32_t*>(at), k_}, {reinterpret_cast<float*>(at) + k_, k_}};
}

bool MpiMoe::is_own(std::int64_t taken_pair) const {
  return taken_pair >= taken_.places[me_] && taken_pair < taken_.places[me_] + taken_.counts[me_];
}

std::span<MpiMoe::Term const> MpiMoe::terms_of(Sum const& sum) const {
  return std::span<Term const>(terms_).subspan(sum.first, sum.count);
}

std::byte* MpiMoe::row_of(Buffer const& buffer, std::int64_t row) const {
  return buffer.data() + static_cast<std::size_t>(row) * row_bytes_;
}

void MpiMoe::plan_expansion() {
  outgoing_.ensure(static_cast<std::size_t>(sent_total_) * row_bytes_);
  incoming_.ensure(static_cast<std::size_t>(taken_total_) * row_bytes_);
  expert_counts_.assign(static_cast<std::size_t>(map_.count(static_cast<int>(me_))), 0);
  for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
    for (auto const id : choices_at(taken_choices_, pair).ids) {
      if (id >= 0) ++expert_counts_[static_cast<std::size_t>(id)];
    }
  }
  std::vector<std::int64_t> next(expert_counts_.size());
  std::exclusive_scan(expert_counts_.begin(), expert_counts_.end(), next.begin(), std::int64_t{0});
  received_rows_ = std::accumulate(expert_counts_.begin(), expert_counts_.end(), std::int64_t{0});
  received_.ensure(static_cast<std::size_t>(received_rows_) * row_bytes_);

  std::vector<std::int64_t> own_tokens;
  for (auto const& pair : pairs_) {
    if (pair.rank == me_) own_tokens.push_back(pair.token);
  }
  expansions_.clear();
  own_expansions_.clear();
  expert_rows_.assign(static_cast<std::size_t>(taken_total_) * k_, -1);
  for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
    bool const own = is_own(pair);
    auto const from = own ? own_tokens[static_cast<std::size_t>(pair - taken_.places[me_])] : pair;
    auto const ids = choices_at(taken_choices_, pair).ids;
    for (std::size_t k = 0; k < k_; ++k) {
      if (ids[k] < 0) continue;
      auto const row = next[static_cast<std::size_t>(ids[k])]++;
      expert_rows_[static_cast<std::size_t>(pair) * k_ + k] = row;
      (own ? own_expansions_ : expansions_).push_back({from, row});
    }
  }
}

/// The weighted sum of one taken pair, k rising.
MpiMoe::Sum MpiMoe::add_pair_sum(std::int64_t taken_pair) {
  auto const first = terms_.size();
  auto const weights = choices_at(taken_choices_, taken_pair).weights;
  for (std::size_t k = 0; k < k_; ++k) {
    auto const row = expert_rows_[static_cast<std::size_t>(taken_pair) * k_ + k];
    if (row >= 0) terms_.push_back({row_of(received_, row), weights[k], 0});
  }
  return {taken_pair, first, terms_.size() - first};
}

void MpiMoe::plan_partial_sums() {
  partial_sums_.clear();
  for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
    if (!is_own(pair)) partial_sums_.push_back(add_pair_sum(pair));
  }
}

/// The owner adds the ranks' parts, rank rising, which is the order of a token's pairs.
void MpiMoe::plan_final_sums() {
  own_part_.ensure(row_bytes_);
  own_sums_.clear();
  final_sums_.clear();
  for (auto const& [token, rank, number] : pairs_) {
    if (own_sums_.empty() || own_sums_.back().to != token) own_sums_.push_back({token, 0, 0});
    if (rank != me_) continue;
    own_sums_.back() = add_pair_sum(number - sent_.places[me_] + taken_.places[me_]);
    own_sums_.back().to = token;
  }
  for (auto const& [token, rank, number] : pairs_) {
    if (final_sums_.empty() || final_sums_.back().to != token) final_sums_.push_back({token, terms_.size(), 0});
    terms_.push_back({rank == me_ ? own_part_.data() : row_of(outgoing_, number), 1.0F, 0});
    ++final_sums_.back().count;
  }
}

}  // namespace support
