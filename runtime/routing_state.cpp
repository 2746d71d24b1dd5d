// SPDX-License-Identifier: Apache-2.0
#include "runtime/routing_state.hpp"

#include <algorithm>

#include "davit/error.hpp"

namespace davit::detail {

RoutingState::RoutingState(std::shared_ptr<GroupState> of, std::uint64_t routing)
    : group(std::move(of)), number(routing) {
  auto const& comm = *group->comm;
  auto const ranks = static_cast<std::size_t>(comm.size);
  auto rows = std::make_shared<ReceivedRows>();
  tokens_of.resize(ranks);
  upward_rows.resize(ranks);
  needed_by.resize(ranks);
  rows->hit_first.push_back(0);
  for (int source = 0; source < comm.size; ++source) {
    rows->source_first.push_back(static_cast<std::uint32_t>(rows->rows.size()));
    read_source(source, *rows);
  }
  rows->source_first.push_back(static_cast<std::uint32_t>(rows->rows.size()));
  tokens = tokens_of[static_cast<std::size_t>(comm.rank)];
  received = std::move(rows);
  group->held[number % static_cast<std::uint64_t>(group->options.routings)].store(true, std::memory_order_release);
}

RoutingState::~RoutingState() {
  auto const& comm = *group->comm;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank != comm.rank) {
      store_release(group->released(rank, comm.rank, number), group->uses_before(number) + 1);
    }
  }
  group->held[number % static_cast<std::uint64_t>(group->options.routings)].store(false, std::memory_order_release);
}

void RoutingState::read_source(int source, ReceivedRows& into) {
  auto const& options = group->options;
  int const me = group->comm->rank;
  auto const area = group->area(source, number);
  auto const count = *area.tokens;
  auto const distrust = [&](std::string const& what) {
    throw PeerError("davit: route: rank " + std::to_string(source) + " published " + what, source);
  };
  if (count < 0 || count > options.max_tokens) distrust(std::to_string(count) + " tokens");
  tokens_of[static_cast<std::size_t>(source)] = count;
  auto const first = group->first_expert(me);
  std::vector<std::int64_t> seen(static_cast<std::size_t>(group->comm->size), -1);  // last token that a rank got
  std::int32_t position = 0;
  for (std::int64_t token = 0; token < count; ++token) {
    bool goes_up = false;
    auto const hits_before = into.hits.size();
    for (std::int64_t k = 0; k < options.top_k; ++k) {
      auto const entry = token * options.top_k + k;
      auto const id = area.ids[entry];
      if (id == -1) continue;
      if (id < 0 || id >= options.experts) distrust("id " + std::to_string(id));
      int const owner = group->owner_of(id);
      if (owner == me)
        into.hits.push_back({static_cast<std::int32_t>(id - first), static_cast<std::int32_t>(k), area.weights[entry]});
      if (owner == source) continue;
      goes_up = true;
      auto& last = seen[static_cast<std::size_t>(owner)];
      if (source == me && last != token) needed_by[static_cast<std::size_t>(owner)].push_back(position);
      last = token;
    }
    if (into.hits.size() > hits_before) {
      into.rows.push_back(
          {static_cast<std::int32_t>(token), source == me ? static_cast<std::int32_t>(token) : position});
      into.hit_first.push_back(static_cast<std::uint32_t>(into.hits.size()));
    }
    if (!goes_up) continue;
    if (source == me) upward_moves.push_back({token, position});
    ++position;
  }
  upward_rows[static_cast<std::size_t>(source)] = position;
}

std::shared_ptr<LayoutPlan const> RoutingState::plan(Layout layout, std::int64_t alignment, bool global_ids) {
  for (auto const& plan : plans_) {
    if (plan->layout == layout && plan->alignment == alignment && plan->global_ids == global_ids) return plan;
  }
  plans_.push_back(std::make_shared<LayoutPlan const>(*group, received, layout, alignment, global_ids));
  return plans_.back();
}

OwnerPlan const& RoutingState::owner_plan(std::int64_t block_tokens, bool by_k) {
  if (owner_plan_ && owner_plan_->block_tokens == block_tokens && owner_plan_->by_k == by_k) return *owner_plan_;
  auto const& comm = *group->comm;
  auto const& options = group->options;
  auto const area = group->area(comm.rank, number);
  OwnerPlan plan{block_tokens, by_k, {}, {0}};
  std::vector<std::uint32_t> rows(static_cast<std::size_t>(comm.size));  // of each rank, in the block so far
  std::vector<float> has(static_cast<std::size_t>(comm.size));
  std::size_t own_hit = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (token % block_tokens == 0) std::fill(rows.begin(), rows.end(), 0U);
    std::fill(has.begin(), has.end(), 0.0F);
    for (std::int64_t k = 0; k < options.top_k; ++k) {
      auto const id = area.ids[token * options.top_k + k];
      if (id == -1) continue;
      auto const rank = static_cast<std::size_t>(group->owner_of(id));
      has[rank] = 1.0F;
      if (!by_k) continue;
      // Rows that this rank keeps are added where they lie, so they are numbered through: see Combine.
      auto const row = static_cast<int>(rank) == comm.rank ? static_cast<std::uint32_t>(own_hit++) : rows[rank]++;
      plan.terms.push_back({static_cast<std::uint32_t>(rank), row, area.weights[token * options.top_k + k], 0});
    }
    for (std::size_t rank = 0; rank < has.size() && !by_k; ++rank) {
      if (has[rank] == 0.0F) continue;
      auto const group_of = [&](std::size_t r) { return r / static_cast<std::size_t>(options.reduce_group); };
      if (plan.terms.size() > plan.first.back() && group_of(plan.terms.back().base) != group_of(rank)) {
        plan.terms.back().closes_group = 1;
      }
      plan.terms.push_back({static_cast<std::uint32_t>(rank), rows[rank]++, 1.0F, 0});
    }
    plan.first.push_back(static_cast<std::uint32_t>(plan.terms.size()));
  }
  owner_plan_ = std::move(plan);
  return *owner_plan_;
}

}  // namespace davit::detail
