// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "davit/error.hpp"
#include "runtime/alltoallv.hpp"

namespace davit::detail {
namespace {

[[noreturn]] void refuse(std::string const& what, std::int64_t value, std::string const& bound) {
  throw UsageError("davit: " + what + " is " + std::to_string(value) + ", must be " + bound);
}

/// First and one-past-last element of rank `peer`'s block.
struct Extent {
  std::int64_t first;
  std::int64_t last;
};

Extent extent(Blocks const& blocks, std::size_t peer) noexcept {
  return {blocks.displs[peer], blocks.displs[peer] + blocks.counts[peer]};
}

void check_disjoint(char const* operation, char const* side, Blocks const& blocks) {
  auto const& counts = blocks.counts;
  // Nearly always the blocks stand in rank order, so look before sorting.
  std::int64_t end = 0;
  bool ascending = true;
  for (std::size_t peer = 0; peer < counts.size() && ascending; ++peer) {
    if (counts[peer] == 0) continue;
    ascending = extent(blocks, peer).first >= end;
    end = extent(blocks, peer).last;
  }
  if (ascending) return;
  std::vector<std::size_t> order;
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    if (counts[peer] > 0) order.push_back(peer);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return blocks.displs[a] < blocks.displs[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    auto const before = extent(blocks, order[i - 1]);
    auto const after = extent(blocks, order[i]);
    if (after.first < before.last) {
      throw UsageError(std::string("davit: ") + operation + ": " + side + "_displs[" + std::to_string(order[i]) +
                       "] is " + std::to_string(after.first) + ", inside the block of rank " +
                       std::to_string(order[i - 1]) + ", which ends at " + std::to_string(before.last) +
                       ": received blocks must not overlap");
    }
  }
}

}  // namespace

Blocks checked_blocks(char const* operation, char const* side, int ranks, void* data, Counts counts, Counts displs,
                      Dtype dtype, bool disjoint) {
  // Texts are made in case of error only: this runs at every call.
  auto const name = [&](char const* what) { return std::string(operation) + ": " + side + what; };
  auto const entry = [&](char const* what, std::size_t peer) { return name(what) + "[" + std::to_string(peer) + "]"; };
  if (data == in_place) throw UsageError("davit: " + name(" is in_place, only send may be"));
  auto const size = static_cast<std::int64_t>(size_of(dtype));
  if (size == 0) refuse(name("_dtype"), static_cast<std::int64_t>(dtype), "one of davit::Dtype");
  auto const entries = static_cast<std::size_t>(ranks);
  if (counts.size() != entries || displs.size() != entries) {
    bool const in_counts = counts.size() != entries;
    throw UsageError("davit: " + name(in_counts ? "_counts" : "_displs") + " has " +
                     std::to_string(in_counts ? counts.size() : displs.size()) + " entries, must have " +
                     std::to_string(ranks) + ", one a rank");
  }
  bool any = false;
  for (std::size_t peer = 0; peer < entries; ++peer) {
    if (counts[peer] < 0) refuse(entry("_counts", peer), counts[peer], "0 or more");
    if (counts[peer] == 0) continue;
    any = true;
    if (displs[peer] < 0) refuse(entry("_displs", peer), displs[peer], "0 or more where the count is not 0");
    std::int64_t end = 0;
    if (!__builtin_add_overflow(displs[peer], counts[peer], &end) && !__builtin_mul_overflow(end, size, &end)) continue;
    auto const bound = INT64_MAX / size;
    if (counts[peer] > bound) refuse(entry("_counts", peer), counts[peer], "at most " + std::to_string(bound));
    refuse(entry("_displs", peer), displs[peer],
           "at most " + std::to_string(bound - counts[peer]) + " for a count of " + std::to_string(counts[peer]));
  }
  if (any && data == nullptr) throw UsageError("davit: " + name(" is null, but ") + side + "_counts are not all 0");
  Blocks const blocks{static_cast<std::byte*>(data), counts, displs, dtype};
  if (disjoint) check_disjoint(operation, side, blocks);
  return blocks;
}

Exchange checked_exchange(char const* operation, int rank, int ranks, void const* send, Counts send_counts,
                          Counts send_displs, Dtype send_dtype, void* recv, Counts recv_counts, Counts recv_displs,
                          Dtype recv_dtype) {
  Exchange exchange;
  exchange.in_place = send == in_place;
  exchange.recv = checked_blocks(operation, "recv", ranks, recv, recv_counts, recv_displs, recv_dtype, true);
  exchange.send = exchange.in_place ? exchange.recv
                                    : checked_blocks(operation, "send", ranks, const_cast<void*>(send), send_counts,
                                                     send_displs, send_dtype, false);
  if (auto const kept = exchange.send.bytes(rank); kept != exchange.recv.bytes(rank)) {
    auto const index = "_counts[" + std::to_string(rank) + "]";
    throw UsageError(std::string("davit: ") + operation + ": send" + index + " is " + bytes_text(kept, send_dtype) +
                     ", must be as long as recv" + index + ", " + bytes_text(exchange.recv.bytes(rank), recv_dtype) +
                     ": this rank keeps that block");
  }
  return exchange;
}

}  // namespace davit::detail
