// SPDX-License-Identifier: Apache-2.0
// The careless MPI recipe: one row a (token, expert) there and back, own rows included. It leaves the rows by (source,
// expert, token): what an expert would want contiguous is not.
#include <numeric>

#include "examples/davit_perf/moe.hpp"
#include "examples/support/buffer.hpp"
#include "examples/support/mpi_rows.hpp"
#include "examples/support/world.hpp"
#include "transports/host/kernels.hpp"

namespace perf {
namespace {

using davit::host::RowMove;
using davit::host::RowSum;
using davit::host::Term;

/// Where each block begins. @return the total.
int place_blocks(std::vector<int> const& counts, std::vector<int>& places) {
  places.resize(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  return std::accumulate(counts.begin(), counts.end(), 0);
}

class MpiExpertMoe final : public MoeSide {
 public:
  MpiExpertMoe(MoeProblem const& problem, support::World const& world)
      : MoeSide(problem), comm_(world.comm()), rows_(problem.row_bytes(), comm_) {
    auto const& map = problem.map();
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      experts_.push_back(static_cast<int>(map.count(rank)));
      first_experts_.push_back(static_cast<int>(map.first(rank)));
    }
    own_experts_.assign(experts_.size(), static_cast<int>(local()));
    place_blocks(own_experts_, own_places_);
  }

  void route() override {
    auto const ids = problem_.ids();
    sent_by_expert_.assign(static_cast<std::size_t>(problem_.map().experts()), 0);
    for (auto const id : ids) ++sent_by_expert_[static_cast<std::size_t>(id)];
    auto const total = place_blocks(sent_by_expert_, next_);
    sent_.counts.assign(experts_.size(), 0);
    for (std::size_t expert = 0; expert < sent_by_expert_.size(); ++expert) {
      sent_.counts[static_cast<std::size_t>(problem_.map().owner(static_cast<std::int32_t>(expert)))] +=
          sent_by_expert_[expert];
    }
    place_blocks(sent_.counts, sent_.places);

    outgoing_.ensure(static_cast<std::size_t>(total) * problem_.row_bytes());
    packs_.clear();
    terms_.clear();
    for (std::size_t choice = 0; choice < ids.size(); ++choice) {
      auto const place = next_[static_cast<std::size_t>(ids[choice])]++;
      packs_.push_back({static_cast<std::int64_t>(choice) / problem_.top_k(), place});
      terms_.push_back(
          {outgoing_.data() + static_cast<std::size_t>(place) * problem_.row_bytes(), problem_.weights()[choice], 0});
    }

    taken_by_expert_.assign(experts_.size() * static_cast<std::size_t>(local()), 0);
    support::check(MPI_Alltoallv(sent_by_expert_.data(), experts_.data(), first_experts_.data(), MPI_INT,
                                 taken_by_expert_.data(), own_experts_.data(), own_places_.data(), MPI_INT, comm_),
                   "MPI_Alltoallv");
    taken_.counts.assign(experts_.size(), 0);
    for (std::size_t i = 0; i < taken_by_expert_.size(); ++i) {
      taken_.counts[i / static_cast<std::size_t>(local())] += taken_by_expert_[i];
    }
    taken_total_ = place_blocks(taken_.counts, taken_.places);
    received_.ensure(static_cast<std::size_t>(taken_total_) * problem_.row_bytes());
  }

  void dispatch() override {
    move_rows(outgoing_.data(), problem_.x(), problem_.row_bytes(), packs_, support::stores_for(outgoing_.bytes()));
    rows_.alltoallv(outgoing_.data(), sent_, received(), taken_);
  }

  void combine() override {
    rows_.alltoallv(received(), taken_, outgoing_.data(), sent_);
    auto const dtype = problem_.dtype();
    auto const k = static_cast<std::size_t>(problem_.top_k());
    RowSum const sum{.in = dtype, .inner = dtype, .out = dtype, .weighted = true, .rounds_inner = false};
    for (std::size_t token = 0; token < static_cast<std::size_t>(problem_.tokens()); ++token) {
      sum_row(sum, std::span<Term const>(terms_).subspan(token * k, k), nullptr,
              output() + token * problem_.row_bytes(), static_cast<std::size_t>(problem_.hidden()));
    }
  }

  [[nodiscard]] std::byte* received() const override { return received_.data(); }
  [[nodiscard]] std::int64_t received_rows() const override { return taken_total_; }

  [[nodiscard]] std::vector<std::int64_t> expert_counts() const override {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(local()), 0);
    for (std::size_t i = 0; i < taken_by_expert_.size(); ++i) counts[i % counts.size()] += taken_by_expert_[i];
    return counts;
  }

  [[nodiscard]] std::vector<std::int64_t> by_expert() const override {
    std::vector<std::int64_t> firsts(taken_by_expert_.size());  // [R, L], as the counts
    std::exclusive_scan(taken_by_expert_.begin(), taken_by_expert_.end(), firsts.begin(), std::int64_t{0});
    std::vector<std::int64_t> rows;
    auto const experts = static_cast<std::size_t>(local());
    for (std::size_t expert = 0; expert < experts; ++expert) {
      for (auto block = expert; block < firsts.size(); block += experts) {
        for (int i = 0; i < taken_by_expert_[block]; ++i) rows.push_back(firsts[block] + i);
      }
    }
    return rows;
  }

 private:
  [[nodiscard]] std::int64_t local() const { return problem_.map().count(problem_.rank()); }

  MPI_Comm comm_;
  support::MpiRows rows_;
  std::vector<int> experts_, first_experts_;   // of each rank
  std::vector<int> own_experts_, own_places_;  // counts of this rank's experts from each rank
  std::vector<int> sent_by_expert_, next_;     // [E]
  std::vector<int> taken_by_expert_;           // [R, L]
  support::RowBlocks sent_, taken_;
  int taken_total_ = 0;
  std::vector<RowMove> packs_;
  std::vector<Term> terms_;  // [T, K]
  support::Buffer outgoing_, received_;
};

}  // namespace

std::unique_ptr<MoeSide> make_mpi_expert_moe(MoeProblem const& problem, support::World const& world) {
  return std::make_unique<MpiExpertMoe>(problem, world);
}

}  // namespace perf
