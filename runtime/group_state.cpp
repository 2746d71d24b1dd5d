// SPDX-License-Identifier: Apache-2.0
#include "runtime/group_state.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "davit/error.hpp"

namespace davit::detail {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::int64_t kMostExperts = std::int64_t{1} << 20;  // there are tables with an entry for each

std::size_t aligned(std::size_t bytes, std::size_t to) noexcept { return (bytes + to - 1) / to * to; }

[[noreturn]] void refuse(char const* field, std::int64_t value, std::string const& bound) {
  throw UsageError(std::string("davit: expert group: ") + field + " is " + std::to_string(value) + ", must be " +
                   bound);
}

/// What ranks must agree on.
struct Proposal {
  std::int64_t fields[9];
};
constexpr char const* kFields[] = {"experts",      "top_k",    "hidden",
                                   "max_tokens",   "dtype",    "partial_dtype",
                                   "reduce_group", "routings", "the group's place in order"};

std::string field_text(std::size_t field, std::int64_t value) {
  return field == 4 || field == 5 ? name_of(static_cast<Dtype>(value)) : std::to_string(value);
}

/// A node's ranks where nodes are equal consecutive blocks, else 1.
int node_block(std::span<int const> nodes) {
  auto const differs = std::find_if(nodes.begin(), nodes.end(), [&](int node) { return node != nodes[0]; });
  auto const block = static_cast<std::size_t>(differs - nodes.begin());
  if (nodes.size() % block != 0) return 1;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] != nodes[rank / block * block]) return 1;
    if (rank % block == 0 && rank > 0 && nodes[rank] == nodes[rank - 1]) return 1;
  }
  return static_cast<int>(block);
}

void check(ExpertGroupOptions const& options, int ranks) {
  constexpr std::int64_t most = INT32_MAX;  // ids and row numbers are 32 bits where they are many
  auto const within = [](char const* field, std::int64_t value, std::int64_t high) {
    if (value < 1 || value > high) refuse(field, value, "1 to " + std::to_string(high));
  };
  within("experts", options.experts, kMostExperts);
  within("top_k", options.top_k, 1024);
  within("hidden", options.hidden, most);
  within("max_tokens", options.max_tokens, most / options.top_k);
  within("routings", options.routings, 1024);
  for (auto const* const allocator : {&options.allocator, &options.device_allocator}) {
    if (!allocator->allocate || allocator->deallocate) continue;
    throw UsageError(std::string("davit: expert group: ") +
                     (allocator == &options.allocator ? "allocator" : "device_allocator") +
                     ".deallocate is empty, must be there where allocate is");
  }
  if (options.reduce_group < 0 || options.reduce_group > ranks) {
    refuse("reduce_group", options.reduce_group, "0 to " + std::to_string(ranks));
  }
  for (auto const dtype : {options.dtype, options.partial_dtype.value_or(options.dtype)}) {
    if (!is_summable(dtype)) {
      throw UsageError(std::string("davit: expert group: ") + (dtype == options.dtype ? "dtype" : "partial_dtype") +
                       " is " + name_of(dtype) + ", must be f32, f16 or bf16");
    }
  }
}

}  // namespace

GroupState::GroupState(std::shared_ptr<CommunicatorState> state, ExpertGroupOptions const& wanted)
    : comm(std::move(state)), options(wanted) {
  CommunicatorState::Entry const inside(*comm);
  auto& bootstrap = *comm->bootstrap;
  auto const what = "expert group on communicator '" + comm->options.name + "'";
  serial = ++comm->groups;
  comm->set_up(Operation::expert_group, [&](Deadline deadline) {
    auto const proposals = gather_results(bootstrap, what, deadline, [&] {
      check(options, comm->size);
      if (options.reduce_group == 0) options.reduce_group = node_block(bootstrap.nodes());
      partial_dtype = options.partial_dtype.value_or(options.dtype);
      return Proposal{{options.experts, options.top_k, options.hidden, options.max_tokens,
                       static_cast<std::int64_t>(options.dtype), static_cast<std::int64_t>(partial_dtype),
                       options.reduce_group, options.routings, serial}};
    });
    for (std::size_t field = 0; field < std::size(kFields); ++field) {
      check_equal(
          what, kFields[field], comm->size,
          [&](int rank) { return proposals[static_cast<std::size_t>(rank)].fields[field]; },
          [&](std::int64_t value) { return field_text(field, value); });
    }
    for (int rank = 0; rank < comm->size; ++rank) {
      owners_.insert(owners_.end(), static_cast<std::size_t>(experts_of(rank)), rank);
    }
    held = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(options.routings));
    std::optional<Segment> segment;
    std::vector<Mirror> mirrors;
    auto const& nodes = comm->mesh->nodes();
    gather_results(bootstrap, what, deadline, [&] {
      segment.emplace(make_segment());
      for (int const owner : nodes.taken_in_by(comm->rank)) mirrors.push_back(make_mirror(owner));
      return 0;
    });
    segments_ = share(bootstrap, what, nodes, *segment, mirrors, deadline);
    if (comm->wire == nullptr) return;
    on_wire_ = comm->wire->add(segment->mapping(), segment->ticket().bytes, std::move(mirrors));
    bootstrap.barrier(deadline);  // nobody sends before all can take it in
  });
}

GroupState::~GroupState() {
  if (on_wire_ >= 0) comm->wire->remove(on_wire_);
}

Segment GroupState::make_segment() const {
  auto const bytes = kPage + counters_bytes() + static_cast<std::size_t>(options.routings) * area_bytes();
  auto segment = Segment::create(environment().shm_dir, bytes);
  segment.reserve(0, segment.ticket().bytes);
  std::memcpy(segment.mapping().get(), &segment.ticket().nonce, sizeof(std::uint64_t));
  return segment;
}

Mirror GroupState::make_mirror(int owner) const {
  constexpr std::uint32_t never_urgent = UINT32_MAX;  // an area is wanted again some routings later
  std::vector<WatchedWord> watched;
  for (int const reader : comm->mesh->nodes().ranks_of(comm->mesh->nodes().here())) {
    for (std::uint64_t area = 0; area < static_cast<std::uint64_t>(options.routings); ++area) {
      watched.push_back({released_offset(reader, area), never_urgent});
    }
  }
  auto segment = make_segment();
  auto const bytes = segment.ticket().bytes;
  return {owner, std::move(segment), bytes, std::move(watched)};
}

void GroupState::publish(std::uint64_t number, std::size_t entries) const {
  if (comm->wire == nullptr) return;
  auto const area = this->area(comm->rank, number);
  auto const* const base = segments_.mappings[static_cast<std::size_t>(comm->rank)].get();
  auto const range = [base](auto const* first, std::size_t count) {
    auto const offset = reinterpret_cast<std::byte const*>(first) - base;
    return WireRange{static_cast<std::uint64_t>(offset), count * sizeof *first};
  };
  for (int node = 0; node < comm->mesh->nodes().nodes(); ++node) {
    if (node == comm->mesh->nodes().here()) continue;
    comm->wire->put(node, on_wire_, {range(area.tokens, 1), range(area.ids, entries), range(area.weights, entries)},
                    {});
  }
}

std::shared_ptr<RowPool> GroupState::pool_for(Side& side) const {
  bool const on_host = &side == &comm->host;
  return pool_of(on_host ? options.allocator : options.device_allocator, side.pool());
}

std::int64_t GroupState::experts_of(int rank) const noexcept {
  return options.experts / comm->size + (rank < options.experts % comm->size ? 1 : 0);
}

std::int64_t GroupState::first_expert(int rank) const noexcept {
  return rank * (options.experts / comm->size) + std::min<std::int64_t>(rank, options.experts % comm->size);
}

/// A line or more for each peer, so that two peers' releases do not share one.
std::size_t GroupState::counters_bytes() const noexcept {
  return aligned(
      static_cast<std::size_t>(comm->size) * aligned(static_cast<std::size_t>(options.routings) * sizeof(Counter), 64),
      kPage);
}

std::size_t GroupState::area_bytes() const noexcept {
  auto const entries = static_cast<std::size_t>(options.max_tokens * options.top_k);
  return 64 + 2 * aligned(entries * sizeof(std::int32_t), 64);
}

RoutingArea GroupState::area(int rank, std::uint64_t number) const noexcept {
  auto const index = number % static_cast<std::uint64_t>(options.routings);
  auto* const base =
      segments_.mappings[static_cast<std::size_t>(rank)].get() + kPage + counters_bytes() + index * area_bytes();
  auto const entries = static_cast<std::size_t>(options.max_tokens * options.top_k);
  return {reinterpret_cast<std::int64_t*>(base), reinterpret_cast<std::int32_t*>(base + 64),
          reinterpret_cast<float*>(base + 64 + aligned(entries * sizeof(std::int32_t), 64))};
}

std::size_t GroupState::released_offset(int peer, std::uint64_t number) const noexcept {
  auto const index = number % static_cast<std::uint64_t>(options.routings);
  auto const line = aligned(static_cast<std::size_t>(options.routings) * sizeof(Counter), 64);
  return kPage + static_cast<std::size_t>(peer) * line + index * sizeof(Counter);
}

Counter& GroupState::released(int rank, int peer, std::uint64_t number) const noexcept {
  auto* const base = segments_.mappings[static_cast<std::size_t>(rank)].get();
  return *reinterpret_cast<Counter*>(base + released_offset(peer, number));
}

}  // namespace davit::detail
