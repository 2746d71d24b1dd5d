// SPDX-License-Identifier: Apache-2.0
// The MPI recipe done well. Rows are numbered by pairs (token, rank): "sent" pairs by (rank, token), "received" pairs
// by (source, token). The rank's own pairs have numbers too, but their rows never move: they are read where they lie.
#include <algorithm>
#include <numeric>

#include "examples/davit_perf/moe.hpp"
#include "examples/davit_perf/mpi_rows.hpp"
#include "transports/host/kernels.hpp"

namespace perf {
namespace {

using davit::host::RowMove;
using davit::host::RowSum;
using davit::host::Term;

class MpiMoe final : public MoeSide {
 public:
  MpiMoe(MoeProblem const& problem, support::World const& world)
      : MoeSide(problem),
        comm_(world.comm()),
        rows_(problem.row_bytes(), comm_),
        choices_(static_cast<std::size_t>(problem.top_k()) * (sizeof(std::int32_t) + sizeof(float)), comm_) {}

  void route() override {
    count_pairs();
    support::check(MPI_Alltoall(sent_.data(), 1, MPI_INT, taken_.data(), 1, MPI_INT, comm_), "MPI_Alltoall");
    taken_total_ = places_of(taken_, taken_places_);
    write_choices();
    exchange_choices();
    plan_expansion();
    plan_partial_sums();
    plan_final_sums();
  }

  void dispatch() override {
    auto const row_bytes = problem_.row_bytes();
    move_rows(outgoing_.data(), problem_.x(), row_bytes, packs_, stores_for(outgoing_.bytes()));
    rows_.alltoallv(outgoing_.data(), sent_to_others_, sent_places_, incoming_.data(), taken_from_others_,
                    taken_places_);
    auto const stores = stores_for(static_cast<std::size_t>(received_rows()) * row_bytes);
    move_rows(received(), problem_.x(), row_bytes, own_expansions_, stores);
    move_rows(received(), incoming_.data(), row_bytes, expansions_, stores);
  }

  void combine() override {
    auto const dtype = problem_.dtype();
    auto const columns = static_cast<std::size_t>(problem_.hidden());
    RowSum const partial{.in = dtype, .inner = dtype, .out = dtype, .weighted = true, .rounds_inner = false};
    for (auto const& sum : partial_sums_) sum_row(partial, terms_of(sum), nullptr, incoming_row(sum.to), columns);
    rows_.alltoallv(incoming_.data(), taken_from_others_, taken_places_, outgoing_.data(), sent_to_others_,
                    sent_places_);
    RowSum const last{.in = dtype, .inner = dtype, .out = dtype, .weighted = false, .rounds_inner = false};
    for (std::size_t i = 0; i < final_sums_.size(); ++i) {
      // The own part is made just before it is read, and stays in the cache.
      if (own_sums_[i].count > 0) sum_row(partial, terms_of(own_sums_[i]), nullptr, own_part_.data(), columns);
      auto* const out = output() + static_cast<std::size_t>(final_sums_[i].to) * problem_.row_bytes();
      sum_row(last, terms_of(final_sums_[i]), nullptr, out, columns);
    }
  }

  [[nodiscard]] std::vector<std::int64_t> expert_counts() const override { return expert_counts_; }

  [[nodiscard]] std::vector<std::int64_t> by_expert() const override {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(received_rows()));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }

 private:
  struct Sum {
    std::int64_t to;
    std::size_t first;
    std::size_t count;
  };

  [[nodiscard]] std::size_t k() const { return static_cast<std::size_t>(problem_.top_k()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(problem_.ranks()); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(problem_.rank()); }
  [[nodiscard]] std::byte* incoming_row(std::int64_t pair) const {
    return incoming_.data() + static_cast<std::size_t>(pair) * problem_.row_bytes();
  }
  [[nodiscard]] std::byte* outgoing_row(std::int64_t pair) const {
    return outgoing_.data() + static_cast<std::size_t>(pair) * problem_.row_bytes();
  }
  [[nodiscard]] std::byte* expert_row(std::int64_t row) const {
    return received() + static_cast<std::size_t>(row) * problem_.row_bytes();
  }
  [[nodiscard]] std::span<Term const> terms_of(Sum const& sum) const {
    return std::span<Term const>(terms_).subspan(sum.first, sum.count);
  }

  // What is sent a pair: K local ids, -1 where the choice is not the receiver's, then K weights.
  static std::int32_t* ids_at(support::Buffer const& choices, std::size_t pair, std::size_t k) {
    return reinterpret_cast<std::int32_t*>(choices.data()) + pair * 2 * k;
  }
  static float* weights_at(support::Buffer const& choices, std::size_t pair, std::size_t k) {
    return reinterpret_cast<float*>(choices.data()) + (pair * 2 + 1) * k;
  }

  /// Calls `visit(token, rank)` for each pair, tokens rising, the ranks of a token rising.
  template <class Visit>
  void for_each_pair(Visit visit) {
    std::vector<int> owners;
    for (std::int64_t token = 0; token < problem_.tokens(); ++token) {
      owners.clear();
      for (auto const id : problem_.ids_of(token)) {
        auto const owner = problem_.map().owner(id);
        auto const at = std::ranges::lower_bound(owners, owner);
        if (at == owners.end() || *at != owner) owners.insert(at, owner);
      }
      for (int const owner : owners) visit(token, static_cast<std::size_t>(owner));
    }
  }

  void count_pairs() {
    sent_.assign(ranks(), 0);
    taken_.assign(ranks(), 0);
    pairs_.clear();
    for_each_pair([&](std::int64_t token, std::size_t rank) { pairs_.push_back({token, rank, sent_[rank]++}); });
    sent_total_ = places_of(sent_, sent_places_);
    for (auto& pair : pairs_) pair.number += sent_places_[pair.rank];
  }

  void write_choices() {
    sent_choices_.ensure(static_cast<std::size_t>(sent_total_) * 2 * k() * sizeof(float));
    packs_.clear();  // tokens rising: a row that several ranks need is read once
    for (auto const& [token, rank, number] : pairs_) {
      auto* const ids = ids_at(sent_choices_, static_cast<std::size_t>(number), k());
      auto* const weights = weights_at(sent_choices_, static_cast<std::size_t>(number), k());
      auto const token_ids = problem_.ids_of(token);
      for (std::size_t i = 0; i < k(); ++i) {
        bool const there = problem_.map().owner(token_ids[i]) == static_cast<int>(rank);
        ids[i] = there ? token_ids[i] - static_cast<std::int32_t>(problem_.map().first(static_cast<int>(rank))) : -1;
        weights[i] = problem_.weights_of(token)[i];
      }
      if (rank != me()) packs_.push_back({token, number});
    }
  }

  void exchange_choices() {
    sent_to_others_ = sent_;
    taken_from_others_ = taken_;
    sent_to_others_[me()] = 0;
    taken_from_others_[me()] = 0;
    taken_choices_.ensure(static_cast<std::size_t>(taken_total_) * 2 * k() * sizeof(float));
    choices_.alltoallv(sent_choices_.data(), sent_to_others_, sent_places_, taken_choices_.data(), taken_from_others_,
                       taken_places_);
    if (sent_[me()] != 0) {
      auto const own = static_cast<std::size_t>(sent_[me()]) * 2 * k();
      std::copy_n(ids_at(sent_choices_, static_cast<std::size_t>(sent_places_[me()]), k()), own,
                  ids_at(taken_choices_, static_cast<std::size_t>(taken_places_[me()]), k()));
    }
    outgoing_.ensure(static_cast<std::size_t>(sent_total_) * problem_.row_bytes());
    incoming_.ensure(static_cast<std::size_t>(taken_total_) * problem_.row_bytes());
  }

  [[nodiscard]] bool is_own(std::int64_t taken_pair) const {
    return taken_pair >= taken_places_[me()] && taken_pair < taken_places_[me()] + taken_[me()];
  }

  void plan_expansion() {
    expert_counts_.assign(static_cast<std::size_t>(problem_.map().count(problem_.rank())), 0);
    auto const pairs = static_cast<std::size_t>(taken_total_);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      for (auto const id : std::span(ids_at(taken_choices_, pair, k()), k())) {
        if (id >= 0) ++expert_counts_[static_cast<std::size_t>(id)];
      }
    }
    std::vector<std::int64_t> next(expert_counts_.size());
    std::exclusive_scan(expert_counts_.begin(), expert_counts_.end(), next.begin(), std::int64_t{0});
    expect_rows(std::accumulate(expert_counts_.begin(), expert_counts_.end(), std::int64_t{0}));

    std::vector<std::int64_t> own_tokens;
    for (auto const& pair : pairs_) {
      if (pair.rank == me()) own_tokens.push_back(pair.token);
    }
    expansions_.clear();
    own_expansions_.clear();
    expert_rows_.assign(pairs * k(), -1);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      auto const number = static_cast<std::int64_t>(pair);
      bool const own = is_own(number);
      auto const from = own ? own_tokens[pair - static_cast<std::size_t>(taken_places_[me()])] : number;
      for (std::size_t i = 0; i < k(); ++i) {
        auto const id = ids_at(taken_choices_, pair, k())[i];
        if (id < 0) continue;
        auto const row = next[static_cast<std::size_t>(id)]++;
        expert_rows_[pair * k() + i] = row;
        (own ? own_expansions_ : expansions_).push_back({from, row});
      }
    }
  }

  /// The weighted sum of one received pair, k rising.
  Sum add_pair_sum(std::int64_t pair) {
    auto const first = terms_.size();
    for (std::size_t i = 0; i < k(); ++i) {
      auto const row = expert_rows_[static_cast<std::size_t>(pair) * k() + i];
      auto const weight = weights_at(taken_choices_, static_cast<std::size_t>(pair), k())[i];
      if (row >= 0) terms_.push_back({expert_row(row), weight, 0});
    }
    return {pair, first, terms_.size() - first};
  }

  void plan_partial_sums() {
    terms_.clear();
    partial_sums_.clear();
    for (std::int64_t pair = 0; pair < taken_total_; ++pair) {
      if (!is_own(pair)) partial_sums_.push_back(add_pair_sum(pair));
    }
  }

  /// The owner adds the ranks' parts, rank rising, which is the order of a token's pairs.
  void plan_final_sums() {
    own_part_.ensure(problem_.row_bytes());
    own_sums_.assign(static_cast<std::size_t>(problem_.tokens()), {0, 0, 0});
    for (auto const& [token, rank, number] : pairs_) {
      if (rank == me()) {
        own_sums_[static_cast<std::size_t>(token)] = add_pair_sum(number - sent_places_[me()] + taken_places_[me()]);
      }
    }
    final_sums_.clear();
    for (auto const& [token, rank, number] : pairs_) {
      if (final_sums_.empty() || final_sums_.back().to != token) final_sums_.push_back({token, terms_.size(), 0});
      terms_.push_back({rank == me() ? own_part_.data() : outgoing_row(number), 1.0F, 0});
      ++final_sums_.back().count;
    }
  }

  struct Pair {
    std::int64_t token;
    std::size_t rank;
    int number;
  };

  MPI_Comm comm_;
  MpiRows rows_;
  MpiRows choices_;
  std::vector<Pair> pairs_;  // by (token, rank)
  std::vector<int> sent_, sent_to_others_, sent_places_, taken_, taken_from_others_, taken_places_;
  int sent_total_ = 0;
  int taken_total_ = 0;
  support::Buffer sent_choices_, taken_choices_;
  support::Buffer outgoing_, incoming_;  // one row a pair; on the way back they change parts
  std::vector<RowMove> packs_, expansions_, own_expansions_;
  std::vector<std::int64_t> expert_counts_;
  std::vector<std::int64_t> expert_rows_;  // [received pairs, K]
  std::vector<Term> terms_;
  std::vector<Sum> partial_sums_;  // of other ranks' tokens, to incoming_
  std::vector<Sum> own_sums_;      // of each own token, to own_part_; none where no choice is here
  std::vector<Sum> final_sums_;    // of each own token
  support::Buffer own_part_;       // one row
};

}  // namespace

std::unique_ptr<MoeSide> make_mpi_moe(MoeProblem const& problem, support::World const& world) {
  return std::make_unique<MpiMoe>(problem, world);
}

}  // namespace perf
