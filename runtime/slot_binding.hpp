// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots on the NUMA nodes of the plan: bound before their pages are there, looked at afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/placement.hpp"
#include "transports/outbox.hpp"

namespace davit::detail {

class SlotBinding {
 public:
  SlotBinding(PlacementPlan const& plan, int rank, Geometry const& geometry)
      : plan_(plan), rank_(rank), geometry_(geometry) {}

  /// Binds the untouched pages of one ring.
  void bind(std::byte* slots, std::size_t bytes, std::uint32_t site);
  /// Looks where the first page of each bound slot has come to lie, and says so: to the log, as a warning where it is
  /// elsewhere or where the kernel refused, which is said once a process.
  void report(std::string const& communicator) const;

 private:
  struct Bound {
    std::byte const* slot;
    int node;
  };
  void bind_to(std::byte* slots, std::size_t bytes, int node);

  PlacementPlan const& plan_;
  int rank_;
  Geometry const& geometry_;
  std::vector<Bound> bound_;
  int refused_ = 0;  ///< errno
  int refused_node_ = -1;
};

}  // namespace davit::detail
