// SPDX-License-Identifier: Apache-2.0
#include "examples/support/mpi_moe.hpp"

#include <algorithm>

#include "examples/support/world.hpp"

namespace support {
namespace {

using davit::host::RowSum;
using davit::host::Stores;

int size_of_world(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Sums before each element: where each block begins. @return the total.
std::int64_t place(MpiRows::Blocks& blocks) {
  int total = 0;
  blocks.places.clear();
  for (int const count : blocks.counts) {
    blocks.places.push_back(total);
    total += count;
  }
  return total;
}

}  // namespace

MpiRows::MpiRows(std::size_t row_bytes, MPI_Comm comm) : comm_(comm) {
  check(MPI_Type_contiguous(static_cast<int>(row_bytes), MPI_BYTE, &type_), "MPI_Type_contiguous");
  check(MPI_Type_commit(&type_), "MPI_Type_commit");
}

MpiRows::~MpiRows() { MPI_Type_free(&type_); }

void MpiRows::alltoallv(std::byte const* send, Blocks const& sent, std::byte* recv, Blocks const& taken) const {
  check(MPI_Alltoallv(send, sent.counts.data(), sent.places.data(), type_, recv, taken.counts.data(),
                      taken.places.data(), type_, comm_),
        "MPI_Alltoallv");
}

Stores stores_for(std::size_t bytes) noexcept {
  constexpr std::size_t most_cached = std::size_t{4} << 20;
  return bytes > most_cached ? Stores::streaming : Stores::cached;
}

MpiMoe::MpiMoe(Shape const& shape, MPI_Comm comm)
    : shape_(shape),
      k_(static_cast<std::size_t>(shape.top_k)),
      row_bytes_(static_cast<std::size_t>(shape.hidden) * size_of(shape.dtype)),
      choices_bytes_(k_ * (sizeof(std::int32_t) + sizeof(float))),
      comm_(comm),
      map_(shape.experts, size_of_world(comm)),
      rows_(row_bytes_, comm),
      choices_(choices_bytes_, comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  me_ = static_cast<std::size_t>(rank);
}

void MpiMoe::route(std::span<std::int32_t const> ids, std::span<float const> weights) {
  number_pairs(ids);
  taken_.counts.resize(sent_.counts.size());
  check(MPI_Alltoall(sent_.counts.data(), 1, MPI_INT, taken_.counts.data(), 1, MPI_INT, comm_), "MPI_Alltoall");
  taken_total_ = place(taken_);
  exchange_choices(ids, weights);
  plan_expansion();
  terms_.clear();
  plan_partial_sums();
  plan_final_sums();
}

void MpiMoe::dispatch(std::byte const* x) {
  move_rows(outgoing_.data(), x, row_bytes_, packs_, stores_for(outgoing_.bytes()));
  rows_.alltoallv(outgoing_.data(), sent_to_others_, incoming_.data(), taken_from_others_);
  auto const stores = stores_for(static_cast<std::size_t>(received_rows_) * row_bytes_);
  move_rows(received_.data(), x, row_bytes_, own_expansions_, stores);
  move_rows(received_.data(), incoming_.data(), row_bytes_, expansions_, stores);
}

void MpiMoe::combine(std::byte* out) {
  auto const dtype = shape_.dtype;
  auto const columns = static_cast<std::size_t>(shape_.hidden);
  RowSum const partial{.in = dtype, .inner = dtype, .out = dtype, .weighted = true, .rounds_inner = false};
  for (auto const& sum : partial_sums_) sum_row(partial, terms_of(sum), nullptr, row_of(incoming_, sum.to), columns);
  rows_.alltoallv(incoming_.data(), taken_from_others_, outgoing_.data(), sent_to_others_);
  RowSum const last{.in = dtype, .inner = dtype, .out = dtype, .weighted = false, .rounds_inner = false};
  for (std::size_t i = 0; i < final_sums_.size(); ++i) {
    // The own part is made just before it is read, and stays in the cache.
    if (own_sums_[i].count > 0) sum_row(partial, terms_of(own_sums_[i]), nullptr, own_part_.data(), columns);
    auto* const to = out + static_cast<std::size_t>(final_sums_[i].to) * row_bytes_;
    sum_row(last, terms_of(final_sums_[i]), nullptr, to, columns);
  }
}

/// Pairs by token, the ranks of a token rising; numbers by (rank, token).
void MpiMoe::number_pairs(std::span<std::int32_t const> ids) {
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

void MpiMoe::exchange_choices(std::span<std::int32_t const> ids, std::span<float const> weights) {
  sent_choices_.ensure(static_cast<std::size_t>(sent_total_) * choices_bytes_);
  packs_.clear();  // tokens rising: a row that several ranks need is read once
  for (auto const& [token, rank, number] : pairs_) {
    auto const choices = choices_at(sent_choices_, number);
    auto const first = static_cast<std::size_t>(token) * k_;
    auto const owner = static_cast<int>(rank);
    for (std::size_t k = 0; k < k_; ++k) {
      auto const id = ids[first + k];
      choices.ids[k] = map_.owner(id) == owner ? id - static_cast<std::int32_t>(map_.first(owner)) : -1;
      choices.weights[k] = weights[first + k];
    }
    if (rank != me_) packs_.push_back({token, number});
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
