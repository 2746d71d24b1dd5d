// SPDX-License-Identifier: Apache-2.0
#include "runtime/placement.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace davit::detail {
namespace {

int first_of(NodeMask const& mask) noexcept {
  for (std::size_t node = 0; node < mask.size(); ++node) {
    if (mask[node]) return static_cast<int>(node);
  }
  return -1;
}

std::uint64_t number_of(PciAddress const& pci) noexcept {
  return (std::uint64_t{pci.domain} << 16 | std::uint64_t{pci.bus} << 8 | std::uint64_t{pci.device} << 3 |
          std::uint64_t{pci.function}) +
         1;
}

NodeMask mask_of(std::vector<int> const& nodes) noexcept {
  NodeMask mask;
  for (int const node : nodes) {
    if (node >= 0 && static_cast<std::size_t>(node) < mask.size()) mask[static_cast<std::size_t>(node)] = true;
  }
  return mask;
}

/// Where a GPU is by the binding: beside it, unknown, or elsewhere.
int distance(Seat const& seat, SeenGpu const& gpu) noexcept {
  if (gpu.near.none() || seat.near_cpus.none()) return 1;
  return (gpu.near & seat.near_cpus).any() ? 0 : 2;
}

using OnHost = std::pair<int, std::uint64_t>;

/// Ranks in order, each the least used of the GPUs nearest to it, of those one on the least used root complex. Ranks
/// that are bound beside few GPUs choose first, so that unbound ones do not take theirs.
void give_gpus(std::span<Seat const> seats, PlacementPlan& plan) {
  std::map<OnHost, int> on_gpu;
  std::map<OnHost, int> on_root;
  auto const take = [&](std::size_t rank, int index) {
    auto const& seat = seats[rank];
    auto const& gpu = seat.gpu[static_cast<std::size_t>(index)];
    plan.ranks[rank].gpu = index;
    ++on_gpu[{seat.host, number_of(gpu.pci)}];
    ++on_root[{seat.host, gpu.root_complex}];
  };
  std::vector<std::size_t> waiting;
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    auto const& seat = seats[rank];
    if (seat.chosen >= 0 && seat.chosen < static_cast<int>(seat.gpus)) {
      take(rank, seat.chosen);
    } else if (seat.takes_gpu && seat.gpus > 0) {
      waiting.push_back(rank);
    }
  }
  auto const choices = [&](std::size_t rank) {
    auto const& seat = seats[rank];
    return std::count_if(seat.gpu.begin(), seat.gpu.begin() + seat.gpus,
                         [&](SeenGpu const& gpu) { return distance(seat, gpu) == 0; });
  };
  std::ranges::stable_sort(waiting, {}, [&](std::size_t rank) {
    auto const near = choices(rank);
    return near == 0 ? static_cast<std::ptrdiff_t>(kMostGpus) + 1 : near;
  });
  for (auto const rank : waiting) {
    auto const& seat = seats[rank];
    auto const cost = [&](int index) {
      auto const& gpu = seat.gpu[static_cast<std::size_t>(index)];
      return std::tuple(on_gpu[{seat.host, number_of(gpu.pci)}], distance(seat, gpu),
                        on_root[{seat.host, gpu.root_complex}], number_of(gpu.pci));
    };
    int best = 0;
    for (int index = 1; index < static_cast<int>(seat.gpus); ++index) {
      if (cost(index) < cost(best)) best = index;
    }
    take(rank, best);
  }
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    auto& place = plan.ranks[rank];
    if (place.gpu < 0) continue;
    auto const& gpu = seats[rank].gpu[static_cast<std::size_t>(place.gpu)];
    place.shares_gpu = on_gpu[{seats[rank].host, number_of(gpu.pci)}] > 1;
    place.is_far = distance(seats[rank], gpu) == 2;
  }
}

/// A rank's node: beside its GPU, else beside its processing units where those are beside one node alone.
int node_of(Seat const& seat, int gpu) noexcept {
  auto const bound = seat.near_cpus & seat.allowed;
  if (gpu >= 0) {
    auto const near = seat.gpu[static_cast<std::size_t>(gpu)].near & seat.allowed;
    if ((near & bound).any()) return first_of(near & bound);
    if (near.any()) return first_of(near);
  }
  return bound.count() == 1 ? first_of(bound) : -1;
}

/// Steps that cross between nodes are spread among those that do not; where all are alike, 1, 2, 3 ...
std::vector<int> order_steps(PlacementPlan const& plan) {
  auto const ranks = static_cast<int>(plan.ranks.size());
  std::vector<int> left(static_cast<std::size_t>(std::max(0, ranks - 1)));
  std::iota(left.begin(), left.end(), 1);
  auto const crossings = [&](int step) {
    int count = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      auto const there = static_cast<std::size_t>((rank + step) % ranks);
      count += plan.ranks[static_cast<std::size_t>(rank)].node != plan.ranks[there].node ? 1 : 0;
    }
    return count;
  };
  int const total =
      std::accumulate(left.begin(), left.end(), 0, [&](int sum, int step) { return sum + crossings(step); });
  std::vector<int> steps;
  int done = 0;
  while (!left.empty()) {
    // In whole numbers: done / taken should stay at total / all.
    auto const taken = static_cast<int>(steps.size()) + 1;
    auto const off = [&](int step) { return std::abs((done + crossings(step)) * (ranks - 1) - taken * total); };
    auto const best = std::ranges::min_element(left, {}, off);
    done += crossings(*best);
    steps.push_back(*best);
    left.erase(best);
  }
  return steps;
}

std::string list(std::vector<int> const& numbers) {
  std::string text;
  for (int const number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return (numbers.size() == 1 ? " " : "s ") + text;
}

void warn(std::span<Seat const> seats, PlacementPlan& plan) {
  std::vector<int> far;
  std::vector<int> forbidden;
  std::map<OnHost, std::vector<int>> sharing;
  std::map<int, std::set<int>> nodes_of_gpus;  // of a host
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    auto const& place = plan.ranks[rank];
    if (place.gpu < 0) continue;
    auto const& gpu = seats[rank].gpu[static_cast<std::size_t>(place.gpu)];
    if (place.is_far) far.push_back(static_cast<int>(rank));
    if (gpu.near.any() && (gpu.near & seats[rank].allowed).none()) forbidden.push_back(static_cast<int>(rank));
    if (place.shares_gpu) sharing[{seats[rank].host, number_of(gpu.pci)}].push_back(static_cast<int>(rank));
    for (int node = 0; node < static_cast<int>(gpu.near.size()); ++node) {
      if (!gpu.near[static_cast<std::size_t>(node)]) continue;
      nodes_of_gpus[seats[rank].host].insert(node);
      break;  // of several one will do
    }
  }
  std::vector<int> astray;
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    auto const node = plan.ranks[rank].node;
    if (node >= 0 && seats[rank].policy.any() && !seats[rank].policy[static_cast<std::size_t>(node)]) {
      astray.push_back(static_cast<int>(rank));
    }
  }
  if (!astray.empty()) {
    plan.warnings.push_back("rank" + list(astray) +
                            " kept by a memory policy from the node beside it, so the program's " +
                            "buffers lie far; leave numactl --membind out, or let it name that node");
  }
  if (!far.empty()) {
    plan.warnings.push_back(
        "rank" + list(far) +
        " bound far from the GPU; pass --bind-to numa --map-by numa (Open MPI: " + "or --bind-to none) to mpirun");
  }
  for (auto const& [gpu, ranks] : sharing) {
    auto const& first = seats[static_cast<std::size_t>(ranks.front())];
    auto const index = static_cast<std::size_t>(plan.ranks[static_cast<std::size_t>(ranks.front())].gpu);
    plan.warnings.push_back("rank" + list(ranks) + " share GPU " + first.gpu[index].pci.text() +
                            "; start no more ranks than GPUs, or give each its own by CUDA_VISIBLE_DEVICES");
  }
  if (!forbidden.empty()) {
    plan.warnings.push_back("rank" + list(forbidden) +
                            " may not use the memory beside the GPU; let cpuset.mems of the " +
                            "cgroup (docker: --cpuset-mems) hold that node");
  }
  if (plan.policy == Placement::near_reader && plan.nodes.size() == 1) {
    auto const split = std::ranges::any_of(nodes_of_gpus, [](auto const& host) { return host.second.size() > 1; });
    if (split) plan.warnings.push_back("GPUs sit beside several nodes but all slots lie on one; allow the others");
  }
}

}  // namespace

Seat seat_of(Machine const& machine, CpuMask const& cpus, std::span<PciAddress const> visible, int chosen) {
  Seat seat;
  seat.cpus = cpus;
  for (auto const& node : machine.nodes) {
    auto const index = static_cast<std::size_t>(node.os_index);
    if (!node.holds_slots || index >= seat.allowed.size()) continue;
    seat.allowed[index] = !machine.forbidden[index];
    seat.near_cpus[index] = (node.cpus & cpus).any();
  }
  for (auto const& pci : visible.first(std::min(visible.size(), kMostGpus))) {
    auto& seen = seat.gpu[seat.gpus++];
    seen.pci = pci;
    auto const* const gpu = machine.gpu(pci);
    if (gpu == nullptr) continue;
    seen.near = mask_of(gpu->numa);
    if (gpu->root_complex >= 0) {
      auto const& name = machine.root_complexes[static_cast<std::size_t>(gpu->root_complex)].name;
      seen.root_complex = std::hash<std::string>{}(name) | 1U;
    }
    // The lowest bridge is the GPU's own port; what several GPUs may share lies above it.
    if (gpu->bridges.size() > 1) seen.switch_ = number_of(gpu->bridges[gpu->bridges.size() - 2].pci);
  }
  seat.chosen = chosen;
  return seat;
}

char const* name_of(Relation relation) noexcept {
  switch (relation) {
    case Relation::self:
      return "self";
    case Relation::same_gpu:
      return "same-gpu";
    case Relation::same_switch:
      return "same-switch";
    case Relation::same_root:
      return "same-root";
    case Relation::same_node:
      return "same-node";
    case Relation::other_node:
      return "other-node";
    case Relation::other_host:
      return "other-host";
    case Relation::unknown:
      break;
  }
  return "unknown";
}

char const* name_of(Placement placement) noexcept {
  switch (placement) {
    case Placement::near_writer:
      return "near-writer";
    case Placement::interleave:
      return "interleave";
    case Placement::near_reader:
      break;
  }
  return "near-reader";
}

std::uint32_t PlacementPlan::rings() const noexcept {
  if (policy != Placement::near_reader || nodes.size() < 2) return 1;
  bool const any_unknown = std::ranges::any_of(ranks, [](RankPlace const& rank) { return rank.node < 0; });
  return static_cast<std::uint32_t>(nodes.size()) + (any_unknown ? 1 : 0);
}

std::vector<std::uint32_t> PlacementPlan::sites() const {
  if (rings() == 1) return {};
  std::vector<std::uint32_t> all;
  for (auto const& rank : ranks) {
    auto const found = std::ranges::find(nodes, rank.node);  // the end, one more, where unknown
    all.push_back(static_cast<std::uint32_t>(found - nodes.begin()));
  }
  return all;
}

int PlacementPlan::node_of_site(std::uint32_t site) const noexcept { return site < nodes.size() ? nodes[site] : -1; }

int PlacementPlan::slots_for(int from, int to) const noexcept {
  auto const writer = ranks[static_cast<std::size_t>(from)].node;
  auto const reader = ranks[static_cast<std::size_t>(to)].node;
  switch (policy) {
    case Placement::near_reader:
      return reader >= 0 ? reader : writer;
    case Placement::near_writer:
      return writer;
    case Placement::interleave:
      break;
  }
  return -1;
}

PlacementPlan place(std::span<Seat const> seats, Placement policy) {
  PlacementPlan plan;
  plan.policy = policy;
  plan.ranks.resize(seats.size());
  give_gpus(seats, plan);
  NodeMask nodes;
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    int const node = plan.ranks[rank].node = node_of(seats[rank], plan.ranks[rank].gpu);
    if (node >= 0) nodes[static_cast<std::size_t>(node)] = true;
    if (policy == Placement::interleave) nodes |= seats[rank].allowed;
  }
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node]) plan.nodes.push_back(static_cast<int>(node));
  }
  plan.steps = order_steps(plan);
  warn(seats, plan);
  return plan;
}

Relation relation(std::span<Seat const> seats, PlacementPlan const& plan, int from, int to) noexcept {
  if (from == to) return Relation::self;
  auto const a = static_cast<std::size_t>(from);
  auto const b = static_cast<std::size_t>(to);
  if (seats[a].host != seats[b].host) return Relation::other_host;
  auto const& one = plan.ranks[a];
  auto const& other = plan.ranks[b];
  if (one.gpu >= 0 && other.gpu >= 0) {
    auto const& up = seats[a].gpu[static_cast<std::size_t>(one.gpu)];
    auto const& down = seats[b].gpu[static_cast<std::size_t>(other.gpu)];
    if (up.pci == down.pci) return Relation::same_gpu;
    if (up.switch_ != 0 && up.switch_ == down.switch_) return Relation::same_switch;
    if (up.root_complex != 0 && up.root_complex == down.root_complex) return Relation::same_root;
  }
  if (one.node < 0 || other.node < 0) return Relation::unknown;
  return one.node == other.node ? Relation::same_node : Relation::other_node;
}

}  // namespace davit::detail
