// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "davit/error.hpp"
#include "runtime/routing_state.hpp"

namespace davit::detail {

LayoutPlan::LayoutPlan(GroupState const& group, std::shared_ptr<ReceivedRows const> rows_in, Layout layout_in,
                       std::int64_t alignment_in, bool global_ids_in)
    : layout(layout_in),
      alignment(alignment_in),
      global_ids(global_ids_in),
      received(std::move(rows_in)),
      top_k_(group.options.top_k),
      first_expert_(group.first_expert(group.comm->rank)) {
  auto const ranks = static_cast<std::size_t>(group.comm->size);
  auto const experts = static_cast<std::size_t>(group.experts_of(group.comm->rank));
  counts.resize(experts * ranks);
  expert_counts.resize(experts);
  expert_offsets.resize(experts);
  for (std::size_t source = 0; source < ranks; ++source) {
    auto const first = received->source_first[source];
    auto const last = received->source_first[source + 1];
    source_counts.push_back(last - first);
    for (auto hit = received->hit_first[first]; hit < received->hit_first[last]; ++hit) {
      ++counts[static_cast<std::size_t>(received->hits[hit].expert) * ranks + source];
      ++expert_counts[static_cast<std::size_t>(received->hits[hit].expert)];
    }
  }
  padded_counts = expert_counts;
  place(group);
  if (rows > UINT32_MAX) {
    throw UsageError("davit: dispatch: this layout has " + std::to_string(rows) + " rows, must be at most " +
                     std::to_string(UINT32_MAX));
  }
}

/// Gives every hit its row.
void LayoutPlan::place(GroupState const& group) {
  auto const ranks = static_cast<std::size_t>(group.comm->size);
  auto const experts = expert_counts.size();
  auto const capacity = group.options.max_tokens;
  std::vector<std::int64_t> next(experts * ranks);  // row of the next hit of (expert, source)
  switch (layout) {
    case Layout::by_source:
      rows = static_cast<std::int64_t>(received->rows.size());
      break;
    case Layout::by_expert:
      for (std::size_t expert = 0; expert < experts; ++expert) {
        expert_offsets[expert] = rows;
        auto row = rows;
        for (std::size_t source = 0; source < ranks; ++source) {
          next[expert * ranks + source] = row;
          row += counts[expert * ranks + source];
        }
        padded_counts[expert] = (expert_counts[expert] + alignment - 1) / alignment * alignment;
        rows += padded_counts[expert];
        if (row < rows) padding.push_back({row, rows});
      }
      break;
    case Layout::expert_slots:
      for (std::size_t expert = 0; expert < experts; ++expert) {
        expert_offsets[expert] = static_cast<std::int64_t>(expert * ranks) * capacity;
        for (std::size_t source = 0; source < ranks; ++source) {
          next[expert * ranks + source] = static_cast<std::int64_t>(expert * ranks + source) * capacity;
        }
      }
      rows = static_cast<std::int64_t>(experts * ranks) * capacity;
      break;
  }
  moves.reserve(layout == Layout::by_source ? received->rows.size() : received->hits.size());
  terms.reserve(moves.capacity());
  move_first.reserve(received->rows.size() + 1);
  move_first.push_back(0);
  for (std::size_t source = 0; source < ranks; ++source) {
    for (auto row = received->source_first[source]; row < received->source_first[source + 1]; ++row) {
      if (layout == Layout::by_source) {
        moves.push_back({received->rows[row].position, row});
        terms.push_back({0, row, 1.0F, 0});
      } else {
        for (auto hit = received->hit_first[row]; hit < received->hit_first[row + 1]; ++hit) {
          auto const to = next[static_cast<std::size_t>(received->hits[hit].expert) * ranks + source]++;
          moves.push_back({received->rows[row].position, to});
          terms.push_back({0, static_cast<std::uint32_t>(to), received->hits[hit].weight, 0});
        }
      }
      move_first.push_back(static_cast<std::uint32_t>(moves.size()));
    }
  }
}

LayoutPlan::Choices const& LayoutPlan::choices() const {
  std::call_once(once_, [this] {
    auto const entries = static_cast<std::size_t>(rows * top_k_);
    choices_.ids.assign(entries, -1);
    choices_.weights.assign(entries, 0.0F);
    for (std::size_t row = 0; row < received->rows.size(); ++row) {
      for (auto move = move_first[row]; move < move_first[row + 1]; ++move) {
        for (auto hit = received->hit_first[row]; hit < received->hit_first[row + 1]; ++hit) {
          auto const& chosen = received->hits[hit];
          auto const entry = static_cast<std::size_t>(moves[move].to * top_k_ + chosen.k);
          choices_.ids[entry] = static_cast<std::int32_t>(chosen.expert + (global_ids ? first_expert_ : 0));
          choices_.weights[entry] = chosen.weight;
        }
      }
    }
  });
  return choices_;
}

ReceivedCounts LayoutPlan::view() const noexcept {
  return {counts, expert_counts, padded_counts, expert_offsets, source_counts};
}

}  // namespace davit::detail
