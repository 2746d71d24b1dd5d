// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/experts.hpp"

#include <algorithm>

#include "examples/moe_layer/row_sum.hpp"

namespace moe {

LocalExperts::LocalExperts(Options const& options, std::int64_t first, std::int64_t count) : ExpertsByRows(options) {
  for (std::int64_t expert = first; expert < first + count; ++expert) experts_.emplace_back(options, expert);
}

void LocalExperts::run(davit::Received& received) {
  if (received.layout() == davit::Layout::by_source) {
    run_shared(received);
  } else {
    ExpertsByRows::run(received);
  }
}

void ExpertsByRows::run(davit::Received& received) {
  if (received.layout() == davit::Layout::expert_slots) return run_slots(received);
  auto const counts = received.counts();
  for (std::int64_t expert = 0; expert < count(); ++expert) {
    auto const number = static_cast<std::size_t>(expert);
    auto const offset = static_cast<std::size_t>(counts.expert_offsets[number]) * received.row_bytes();
    apply(expert, received.data() + offset, counts.expert_counts[number]);
  }
}

void ExpertsByRows::run(std::byte* rows, std::span<std::int64_t const> counts) {
  for (std::int64_t expert = 0; expert < count(); ++expert) {
    auto const mine = counts[static_cast<std::size_t>(expert)];
    apply(expert, rows, mine);
    rows += static_cast<std::size_t>(mine) * options_.row_bytes();
  }
}

/// Each source has room for a whole batch at each expert, and fills the front of it.
void ExpertsByRows::run_slots(davit::Received& received) {
  auto const counts = received.counts();
  auto const sources = counts.source_counts.size();
  for (std::int64_t expert = 0; expert < count(); ++expert) {
    auto const number = static_cast<std::size_t>(expert);
    for (std::size_t source = 0; source < sources; ++source) {
      auto const row = counts.expert_offsets[number] + static_cast<std::int64_t>(source) * options_.tokens;
      apply(expert, received.data() + static_cast<std::size_t>(row) * received.row_bytes(),
            counts.counts[number * sources + source]);
    }
  }
}

void LocalExperts::run_shared(davit::Received& received) const {
  auto const results = run_chosen(received.data(), received.row_bytes(), received.ids(), options().top_k,
                                  static_cast<std::int64_t>(experts_.size()),
                                  [this](std::int64_t expert, std::byte* rows, std::int64_t count) {
                                    experts_[static_cast<std::size_t>(expert)].apply(rows, count);
                                  });
  auto const k = static_cast<std::size_t>(options().top_k);
  RowSum sum(options().hidden);
  for (std::size_t row = 0; row < static_cast<std::size_t>(received.rows()); ++row) {
    sum.clear();
    for (std::size_t choice = row * k; choice < (row + 1) * k; ++choice) {
      if (results.at[choice] < 0) continue;
      sum.add(options().dtype,
              results.rows.data() + static_cast<std::size_t>(results.at[choice]) * received.row_bytes(),
              received.weights()[choice]);
    }
    sum.store(options().dtype, received.data() + row * received.row_bytes());
  }
}

Results run_chosen(std::byte const* rows, std::size_t row_bytes, std::span<std::int32_t const> ids, std::int64_t top_k,
                   std::int64_t experts,
                   std::function<void(std::int64_t expert, std::byte* rows, std::int64_t count)> const& apply) {
  std::vector<std::vector<std::size_t>> choices_of(static_cast<std::size_t>(experts));
  std::size_t total = 0;
  for (std::size_t choice = 0; choice < ids.size(); ++choice) {
    if (ids[choice] < 0) continue;
    choices_of[static_cast<std::size_t>(ids[choice])].push_back(choice);
    ++total;
  }
  Results results{std::vector<std::byte>(total * row_bytes), std::vector<std::int64_t>(ids.size(), -1)};
  std::int64_t next = 0;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    auto* const first = results.rows.data() + static_cast<std::size_t>(next) * row_bytes;
    auto* to = first;
    for (auto const choice : choices_of[static_cast<std::size_t>(expert)]) {
      std::copy_n(rows + choice / static_cast<std::size_t>(top_k) * row_bytes, row_bytes, to);
      to += row_bytes;
      results.at[choice] = next++;
    }
    apply(expert, first, static_cast<std::int64_t>(choices_of[static_cast<std::size_t>(expert)].size()));
  }
  return results;
}

}  // namespace moe
