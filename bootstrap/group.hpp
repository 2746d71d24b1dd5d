// SPDX-License-Identifier: Apache-2.0
/// @file
/// What both bootstraps share: who forms a group in a split, how nodes are numbered, how missing ranks are named.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "davit/error.hpp"

namespace davit::bootstrap {

/// One rank's part in a split, as it travels between the ranks.
struct Wish {
  std::int32_t color;
  std::int32_t key;
};

/// Ranks that wish for `color`, in the order of the new group: by key, then by rank.
inline std::vector<int> members(std::span<Wish const> wishes, int color) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    if (wishes[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::ranges::stable_sort(ranks, {}, [&](int r) { return wishes[static_cast<std::size_t>(r)].key; });
  return ranks;
}

/// Numbers from 0, rising in the order in which a value is first seen; equal values get equal numbers.
template <class T>
std::vector<int> number_by_appearance(std::vector<T> const& values) {
  std::vector<T> seen;
  std::vector<int> numbers;
  for (T const& value : values) {
    auto const at = std::ranges::find(seen, value);
    numbers.push_back(static_cast<int>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(value);
  }
  return numbers;
}

/// "1, 3-5": ranks (rising) for people; runs are drawn together, so that a thousand missing ranks still read well.
inline std::string list_ranks(std::span<int const> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

/// Text of the TimeoutError of an allgather. @param missing the ranks that did not come, rising
inline std::string did_not_come(std::span<int const> missing, int size) {
  return "davit: bootstrap allgather: time-out waiting for rank" + std::string(missing.size() == 1 ? " " : "s ") +
         list_ranks(missing) + " of " + std::to_string(size);
}

/// @throws MismatchError unless all ranks bring the same number of bytes; `lengths` is rank rising.
inline void require_equal(std::span<std::size_t const> lengths) {
  auto const other = std::ranges::find_if(lengths, [&](std::size_t length) { return length != lengths[0]; });
  if (other == lengths.end()) return;
  throw MismatchError("davit: bootstrap allgather: lengths differ: rank 0 brings " + std::to_string(lengths[0]) +
                      " bytes, rank " + std::to_string(other - lengths.begin()) + " " + std::to_string(*other));
}

/// @throws UsageError unless `all` holds one block of `mine` bytes a rank.
inline void require_room(std::size_t mine, std::size_t all, int size) {
  if (all == mine * static_cast<std::size_t>(size)) return;
  throw UsageError("davit: bootstrap allgather: `all` has " + std::to_string(all) + " bytes, must be " +
                   std::to_string(mine) + " * " + std::to_string(size) + " ranks");
}

}  // namespace davit::bootstrap
