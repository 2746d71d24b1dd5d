// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "examples/davit_perf/change.hpp"
#include "transports/host/kernels.hpp"

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

std::vector<std::int64_t> parts_of(Skew skew, std::int64_t mean, int ranks) {
  if (skew == Skew::zipf) return zipf_parts(mean * ranks, ranks);
  std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks), skew == Skew::uniform ? mean : 0);
  if (skew == Skew::all_to_one) parts.front() = mean * ranks;
  return parts;
}

/// What reduce_scatterv adds; the others move bytes.
std::optional<davit::Dtype> numbers_of(Options const& options) {
  if (options.operation != Operation::reduce_scatterv) return std::nullopt;
  return options.dtype;
}

/// Whole numbers so small that any sum over the ranks is exact in bf16, in whatever order it is made.
std::int64_t largest_number(int ranks) { return std::clamp<std::int64_t>(256 / ranks, 1, 100); }

}  // namespace

void Blocks::add(std::int64_t count) {
  counts.push_back(count);
  displs.push_back(total);
  total += count;
}

Shape shape_of(Options const& options, std::int64_t bytes, int rank, int ranks) {
  auto const element = static_cast<std::int64_t>(size_of(numbers_of(options).value_or(davit::u8)));
  auto parts = parts_of(options.skew, bytes / element, ranks);
  for (auto& part : parts) part *= element;
  auto const mine = parts[static_cast<std::size_t>(rank)];
  Shape shape;
  if (options.operation == Operation::allgatherv) {
    shape.send.add(mine);
    for (auto const part : parts) shape.recv.add(part);
    return shape;
  }
  for (auto const part : parts) shape.send.add(part);
  bool const is_sum = options.operation == Operation::reduce_scatterv;
  for (int peer = 0; peer < (is_sum ? 1 : ranks); ++peer) shape.recv.add(mine);
  return shape;
}

Exchange::Exchange(Options const& options, std::int64_t bytes, support::World const& world, Device& device)
    : operation_(options.operation),
      numbers_(numbers_of(options)),
      shape_(shape_of(options, bytes, world.rank(), world.size())),
      rank_(world.rank()),
      ranks_(world.size()),
      key_(mix(mix(options.seed) + static_cast<std::uint64_t>(world.rank()))),
      largest_(largest_number(world.size())),
      device_(device),
      input_(device.allocate(static_cast<std::size_t>(shape_.send.total))) {
  device_.write(input_.get(), first_input());
}

std::vector<std::byte> Exchange::first_input() const {
  std::vector<std::byte> data(static_cast<std::size_t>(shape_.send.total));
  auto const step = numbers_ ? size_of(*numbers_) : sizeof(std::uint64_t);
  for (std::size_t at = 0; at < data.size(); at += step) {
    auto const word = mix(key_ + at);
    if (numbers_) {
      davit::host::store_element(*numbers_, static_cast<float>(whole_number(word, largest_)), data.data() + at);
    } else {
      std::memcpy(data.data() + at, &word, std::min(step, data.size() - at));
    }
  }
  return data;
}

void Exchange::change(std::uint64_t round) {
  device_.change(BlockChange{.data = input_.get(),
                             .counts = shape_.send.counts,
                             .displs = shape_.send.displs,
                             .numbers = numbers_,
                             .largest = largest_,
                             .key = mix(key_ ^ mix(round))});
}

std::vector<std::int64_t> Exchange::in_elements(std::vector<std::int64_t> const& bytes) const {
  auto elements = bytes;
  for (auto& number : elements) number /= static_cast<std::int64_t>(size_of(dtype()));
  return elements;
}

std::int64_t Exchange::bytes_to_others() const noexcept {
  if (operation_ == Operation::allgatherv) return shape_.send.total * (ranks_ - 1);
  return shape_.send.total - shape_.send.counts[static_cast<std::size_t>(rank_)];
}

}  // namespace perf
