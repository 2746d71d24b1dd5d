// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "examples/support/random.hpp"

namespace perf {
namespace {

using support::mix;

/// A part of `total` for each rank: the n-th one's in proportion to 1/n.
std::vector<std::int64_t> zipf_parts(std::int64_t total, int ranks) {
  std::vector<std::int64_t> parts;
  double harmonic = 0;
  for (int n = 1; n <= ranks; ++n) harmonic += 1.0 / n;
  for (int n = 1; n <= ranks; ++n) {
    parts.push_back(static_cast<std::int64_t>(static_cast<double>(total) / harmonic / n));
  }
  parts.front() += total - std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  return parts;
}

std::vector<std::int64_t> parts_of(Skew skew, std::int64_t bytes, int ranks) {
  if (skew == Skew::zipf) return zipf_parts(bytes * ranks, ranks);
  std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks), skew == Skew::uniform ? bytes : 0);
  if (skew == Skew::all_to_one) parts.front() = bytes * ranks;
  return parts;
}

}  // namespace

void Blocks::add(std::int64_t count) {
  counts.push_back(count);
  displs.push_back(total);
  total += count;
}

Shape shape_of(Operation operation, Skew skew, std::int64_t bytes, int rank, int ranks) {
  auto const parts = parts_of(skew, bytes, ranks);
  auto const mine = parts[static_cast<std::size_t>(rank)];
  Shape shape;
  if (operation == Operation::allgatherv) {
    shape.send.add(mine);
    for (auto const part : parts) shape.recv.add(part);
  } else {
    for (auto const part : parts) shape.send.add(part);
    for (int peer = 0; peer < ranks; ++peer) shape.recv.add(mine);
  }
  return shape;
}

Exchange::Exchange(Operation operation, Skew skew, std::int64_t bytes, std::uint64_t seed, support::World const& world)
    : operation_(operation),
      shape_(shape_of(operation, skew, bytes, world.rank(), world.size())),
      rank_(world.rank()),
      ranks_(world.size()),
      key_(mix(mix(seed) + static_cast<std::uint64_t>(world.rank()))),
      input_(static_cast<std::size_t>(shape_.send.total)) {
  for (std::size_t at = 0; at < input_.bytes(); at += sizeof(std::uint64_t)) {
    auto const word = mix(key_ + at);
    std::memcpy(input_.data() + at, &word, std::min(sizeof word, input_.bytes() - at));
  }
}

void Exchange::change(std::uint64_t round) noexcept {
  constexpr std::int64_t words = 4;
  auto word = mix(key_ ^ mix(round));
  for (std::size_t block = 0; block < shape_.send.counts.size(); ++block) {
    auto const bytes = shape_.send.counts[block];
    auto* const data = input_.data() + shape_.send.displs[block];
    auto const length = std::min<std::int64_t>(sizeof word, bytes);
    for (std::int64_t i = 0; i < words && bytes > 0; ++i, ++word) {
      // From the first to the last word of the block, so that a cut or late end shows.
      std::memcpy(data + (bytes - length) * i / (words - 1), &word, static_cast<std::size_t>(length));
    }
  }
}

std::int64_t Exchange::bytes_to_others() const noexcept {
  if (operation_ == Operation::allgatherv) return shape_.send.total * (ranks_ - 1);
  return shape_.send.total - shape_.send.counts[static_cast<std::size_t>(rank_)];
}

}  // namespace perf
