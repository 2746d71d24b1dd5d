// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "davit/error.hpp"
#include "runtime/routing_state.hpp"

namespace davit::detail {

template <class Id>
Choices canonical_choices(ExpertGroupOptions const& options, std::span<Id const> ids, std::span<float const> weights) {
  auto const k_count = static_cast<std::size_t>(options.top_k);
  if (ids.size() % k_count != 0) {
    throw UsageError("davit: route: ids has " + std::to_string(ids.size()) +
                     " entries, must have tokens x top_k, top_k " + std::to_string(options.top_k));
  }
  Choices choices;
  choices.tokens = static_cast<std::int64_t>(ids.size() / k_count);
  if (choices.tokens > options.max_tokens) {
    throw UsageError("davit: route: tokens is " + std::to_string(choices.tokens) + ", must be at most max_tokens " +
                     std::to_string(options.max_tokens));
  }
  if (weights.size() != ids.size()) {
    throw UsageError("davit: route: weights has " + std::to_string(weights.size()) +
                     " entries, must have as many as ids, " + std::to_string(ids.size()));
  }
  choices.ids.resize(ids.size());
  choices.weights.resize(ids.size());
  for (std::size_t at = 0; at < ids.size(); ++at) {
    auto const id = ids[at];
    if (id < -1 || static_cast<std::int64_t>(id) >= options.experts) {
      throw UsageError("davit: route: ids[" + std::to_string(at / k_count) + ", " + std::to_string(at % k_count) +
                       "] is " + std::to_string(id) + ", must be -1 to " + std::to_string(options.experts - 1));
    }
    choices.ids[at] = static_cast<std::int32_t>(id);
    choices.weights[at] = id == -1 ? 0.0F : weights[at];
    if (id == -1) continue;
    // Met before in this token: the expert sees the row once, with the sum of the weights.
    auto const row = choices.ids.begin() + static_cast<std::ptrdiff_t>(at / k_count * k_count);
    auto const here = choices.ids.begin() + static_cast<std::ptrdiff_t>(at);
    auto const first = std::find(row, here, static_cast<std::int32_t>(id));
    if (first == here) continue;
    choices.weights[static_cast<std::size_t>(first - choices.ids.begin())] += weights[at];
    choices.ids[at] = -1;
    choices.weights[at] = 0.0F;
  }
  return choices;
}

template Choices canonical_choices(ExpertGroupOptions const&, std::span<std::int32_t const>, std::span<float const>);
template Choices canonical_choices(ExpertGroupOptions const&, std::span<std::int64_t const>, std::span<float const>);

Route::Route(GroupState& group, Choices const& choices)
    : Call(*group.comm, Operation::route, std::uint64_t{group.serial} << 32 | (group.next_routing & 0xffffffffU)),
      group_(group),
      choices_(choices) {}

std::string Route::explain(std::uint64_t mine, std::uint64_t theirs) const {
  return "expert group " + std::to_string(mine >> 32) + ", routing " + std::to_string(mine & 0xffffffffU) +
         " and expert group " + std::to_string(theirs >> 32) + ", routing " + std::to_string(theirs & 0xffffffffU);
}

bool Route::area_is_free(int peer) const noexcept {
  auto const next = group_.next_routing;
  return has_reached(load_acquire(group_.released(comm_.rank, peer, next)), group_.uses_before(next));
}

/// Waits until all peers have let go of the area's last routing, unless one refuses this call: then it is void.
bool Route::open() {
  bool is_void = false;
  bool is_free = true;
  for (int step = 1; step < comm_.size; ++step) {
    auto const* const theirs = comm_.mesh->card(after(step), number);
    is_void = is_void || (theirs != nullptr && (theirs->flags & kCardRefused) != 0);
    is_free = is_free && area_is_free(after(step));
  }
  if (is_void) return true;
  if (!is_free) return false;
  auto const area = group_.area(comm_.rank, group_.next_routing);
  auto const entries = choices_.ids.size();
  *area.tokens = choices_.tokens;
  if (entries > 0) {
    std::memcpy(area.ids, choices_.ids.data(), entries * sizeof(std::int32_t));
    std::memcpy(area.weights, choices_.weights.data(), entries * sizeof(float));
  }
  group_.publish(group_.next_routing, entries);
  comm_.stats.bytes_ids += entries * (sizeof(std::int32_t) + sizeof(float));
  return true;  // the cards, posted with release, make the area visible
}

void Route::awaited_to_open(std::vector<int>& peers) const {
  for (int step = 1; step < comm_.size; ++step) {
    if (!area_is_free(after(step))) peers.push_back(after(step));
  }
}

}  // namespace davit::detail
