// SPDX-License-Identifier: Apache-2.0
#include "examples/support/moe_recipe.hpp"

#include <algorithm>
#include <utility>

#include "examples/support/world.hpp"

namespace support {
namespace {

int size_of_world(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Sums before each element: where each block begins. @return the total.
std::int64_t place(RowBlocks& blocks) {
  int total = 0;
  blocks.places.clear();
  for (int const count : blocks.counts) {
    blocks.places.push_back(total);
    total += count;
  }
  return total;
}

}  // namespace

MoeRecipe::MoeRecipe(LayerShape const& shape, MPI_Comm comm, std::unique_ptr<RowCarrier> carrier)
    : shape_(shape),
      k_(static_cast<std::size_t>(shape.top_k)),
      row_bytes_(shape.row_bytes()),
      choices_bytes_(k_ * (sizeof(std::int32_t) + sizeof(float))),
      comm_(comm),
      map_(shape.experts, size_of_world(comm)),
      carrier_(std::move(carrier)),
      choices_(choices_bytes_, comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  me_ = static_cast<std::size_t>(rank);
  final_sums_.rounds_groups = true;
}

void MoeRecipe::route(std::span<std::int32_t const> ids, std::span<float const> weights) {
  carrier_->finish();
  number_pairs(ids);
  taken_.counts.resize(sent_.counts.size());
  check(MPI_Alltoall(sent_.counts.data(), 1, MPI_INT, taken_.counts.data(), 1, MPI_INT, comm_), "MPI_Alltoall");
  taken_total_ = place(taken_);
  exchange_choices(ids, weights);
  plan_expansion();
  plan_partial_sums();
  plan_final_sums();
  for (auto* const list : {&packs_, &own_expansions_, &expansions_}) carrier_->keep(*list);
  for (auto* const list : {&sums_before_own_, &sums_behind_own_, &final_sums_}) carrier_->keep(*list);
}

void MoeRecipe::dispatch(std::byte const* x) {
  carrier_->move(outgoing_.data(), x, packs_);
  carrier_->exchange(outgoing_.data(), sent_to_others_, incoming_.data(), taken_from_others_);
  carrier_->move(received_.data(), x, own_expansions_);
  carrier_->move(received_.data(), incoming_.data(), expansions_);
}

void MoeRecipe::combine(std::byte* out) {
  carrier_->sum(incoming_.data(), sums_before_own_);
  carrier_->sum(row_of(incoming_, taken_.places[me_] + taken_.counts[me_]), sums_behind_own_);
  carrier_->exchange(incoming_.data(), taken_from_others_, outgoing_.data(), sent_to_others_);
  carrier_->sum(out, final_sums_);
}

/// Pairs by token, the ranks of a token rising; numbers by (rank, token).
void MoeRecipe::number_pairs(std::span<std::int32_t const> ids) {
  sent_.counts.assign(static_cast<std::size_t>(map_.ranks()), 0);
  pairs_.clear();
  std::vector<int> owners;
  for (std::size_t token = 0; token < ids.size() / k_; ++token) {
    owners.clear();
    for (auto const id : ids.subspan(token * k_, k_)) {
      auto const owner = map_.owner(id);
      auto const at = std::ranges::lower_bound(owners, owner);
      if (at == owners.end() || *at != owner) owners.insert(at, owner);
    }
    for (int const owner : owners) {
      auto const rank = static_cast<std::size_t>(owner);
      pairs_.push_back({static_cast<std::int64_t>(token), rank, sent_.counts[rank]++});
    }
  }
  sent_total_ = place(sent_);
  for (auto& pair : pairs_) pair.number += sent_.places[pair.rank];
}

void MoeRecipe::exchange_choices(std::span<std::int32_t const> ids, std::span<float const> weights) {
  sent_choices_.ensure(static_cast<std::size_t>(sent_total_) * choices_bytes_);
  packs_.moves.clear();  // tokens rising: a row that several ranks need is read once
  for (auto const& [token, rank, number] : pairs_) {
    auto const choices = choices_at(sent_choices_, number);
    auto const first = static_cast<std::size_t>(token) * k_;
    auto const owner = static_cast<int>(rank);
    for (std::size_t k = 0; k < k_; ++k) {
      auto const id = ids[first + k];
      choices.ids[k] = map_.owner(id) == owner ? id - static_cast<std::int32_t>(map_.first(owner)) : -1;
      choices.weights[k] = weights[first + k];
    }
    if (rank != me_) packs_.moves.push_back({token, number});
  }

  sent_to_others_ = sent_;
  taken_from_others_ = taken_;
  sent_to_others_.counts[me_] = 0;
  taken_from_others_.counts[me_] = 0;
  taken_choices_.ensure(static_cast<std::size_t>(taken_total_) * choices_bytes_);
  choices_.alltoallv(sent_choices_.data(), sent_to_others_, taken_choices_.data(), taken_from_others_);
  auto const at = [this](int pair) { return static_cast<std::size_t>(pair) * choices_bytes_; };
  std::copy_n(sent_choices_.data() + at(sent_.places[me_]), at(sent_.counts[me_]),
              taken_choices_.data() + at(taken_.places[me_]));
}

}  // namespace support
