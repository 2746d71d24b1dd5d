// SPDX-License-Identifier: Apache-2.0
/// @file
/// What davit_info shows: a machine, the ranks on it, and the plan for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/support/world.hpp"
#include "runtime/factory.hpp"
#include "runtime/placement.hpp"
#include "transports/topology.hpp"

namespace info {

struct Survey {
  davit::Machine machine;
  std::vector<davit::detail::Seat> seats;  ///< a rank each
  std::vector<std::string> hosts;          ///< a rank each
  davit::detail::PlacementPlan plan;
  davit::Geometry slots;  ///< of one rank
  std::string built;

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(seats.size()); }
  /// PCI address of a rank's GPU, if it has one.
  [[nodiscard]] std::optional<davit::PciAddress> gpu_of(int rank) const;
  /// "0000:17" of a rank's GPU; empty where unknown.
  [[nodiscard]] std::string root_complex_of(int rank) const;
  /// Of shared memory, of one rank.
  [[nodiscard]] std::size_t bytes() const { return slots.control_bytes() + slots.slots_bytes(); }
  [[nodiscard]] davit::detail::RankPlace const& place(int rank) const {
    return plan.ranks[static_cast<std::size_t>(rank)];
  }
};

/// The machines of a job, as its ranks find them; the first rank's is drawn. Collective.
[[nodiscard]] Survey survey_job(support::World const& world, davit::Placement placement);
/// A machine from a file, with `ranks` unbound ranks on it; -1: one a GPU.
[[nodiscard]] Survey survey_file(std::string const& file, int ranks, davit::Placement placement);

/// "0-7,16".
[[nodiscard]] std::string ranges(davit::CpuMask const& cpus);
/// "188 GiB".
[[nodiscard]] std::string size_text(std::uint64_t bytes);

[[nodiscard]] std::string as_table(Survey const& survey);
[[nodiscard]] std::string as_json(Survey const& survey);
[[nodiscard]] std::string as_picture(Survey const& survey);

}  // namespace info
