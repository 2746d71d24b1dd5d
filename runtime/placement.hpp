// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where everything goes: GPUs to ranks, slots to NUMA nodes, steps into an order. A pure function of what all ranks
/// tell of themselves, so that all come to the same plan without asking.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "davit/options.hpp"
#include "transports/machine.hpp"

namespace davit::detail {

constexpr std::size_t kMostGpus = 32;  ///< that one rank tells of; further ones are left out

/// A GPU as a rank tells of it.
struct SeenGpu {
  PciAddress pci;
  NodeMask near;                   ///< nodes that can hold slots; none: unknown
  std::uint64_t root_complex = 0;  ///< equal: the same one; 0: unknown
  std::uint64_t switch_ = 0;       ///< equal: below the same bridge, further down than the root complex; 0: none
};

/// Where a rank sits. Trivially copyable; travels through a bootstrap.
struct Seat {
  int host = 0;            ///< equal: the same machine
  CpuMask cpus;            ///< that the rank may run on
  NodeMask near_cpus;      ///< nodes that can hold slots beside those; of an unbound rank all
  NodeMask allowed;        ///< nodes that can hold slots and that the rank may use
  NodeMask policy;         ///< nodes that its memory policy keeps to; none: no such policy
  std::uint32_t gpus = 0;  ///< how many it may use
  std::array<SeenGpu, kMostGpus> gpu{};
  std::int32_t chosen = -1;  ///< index of the GPU that the program has chosen
  bool takes_gpu = true;     ///< whether to give it one where the program has chosen none
};

/// Tells a rank's seat from its machine. @param visible GPUs that it may use, in its own numbering (a CUDA device's PCI
/// address); those that the machine does not show are of unknown place. @param chosen index into `visible`, or -1
[[nodiscard]] Seat seat_of(Machine const& machine, CpuMask const& cpus, std::span<PciAddress const> visible,
                           int chosen);

/// How near two ranks' GPUs (where they have none, their slots) are to each other.
enum class Relation : std::uint8_t {
  self,
  same_gpu,
  same_switch,
  same_root,
  same_node,
  other_node,
  other_host,
  unknown
};
[[nodiscard]] char const* name_of(Relation relation) noexcept;
/// "near-reader".
[[nodiscard]] char const* name_of(Placement placement) noexcept;

struct RankPlace {
  int gpu = -1;   ///< index into the rank's visible GPUs; -1: none
  int node = -1;  ///< NUMA node, by os index, beside which the rank reads; -1: unknown
  bool shares_gpu = false;
  bool is_far = false;  ///< its processing units are beside other nodes than its GPU
};

struct PlacementPlan {
  std::vector<RankPlace> ranks;
  std::vector<int> steps;  ///< distances 1 to R-1 in the order in which all ranks take them
  std::vector<int> nodes;  ///< that hold slots, rising; empty: nobody knows, slots lie near their writers
  Placement policy = Placement::near_reader;
  std::vector<std::string> warnings;  ///< each says what to change

  /// How many nodes the slots of one outbox lie on by ring, and on which of these (as index) each rank sits. Ranks of
  /// unknown node count as one more.
  [[nodiscard]] std::uint32_t rings() const noexcept;
  [[nodiscard]] std::vector<std::uint32_t> sites() const;
  /// Node of a site, by os index; -1: unknown.
  [[nodiscard]] int node_of_site(std::uint32_t site) const noexcept;

  /// Node of the slots that `from` fills for `to`, -1 where left to the kernel (and spread over `nodes` by interleave).
  [[nodiscard]] int slots_for(int from, int to) const noexcept;
};

[[nodiscard]] PlacementPlan place(std::span<Seat const> seats, Placement policy);
[[nodiscard]] Relation relation(std::span<Seat const> seats, PlacementPlan const& plan, int from, int to) noexcept;

}  // namespace davit::detail
