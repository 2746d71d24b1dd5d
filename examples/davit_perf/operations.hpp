// SPDX-License-Identifier: Apache-2.0
/// @file
/// What main runs: one function a kind of operation.
#pragma once

#include "davit/communicator.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/measure.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/davit_perf/report.hpp"
#include "examples/support/world.hpp"

namespace perf {

struct Bench {
  support::World const& world;
  Options const& options;
  davit::Communicator& comm;
  Device& device;
  Meter& meter;
  Report& report;
};

// Collective. True if no check failed, or none was asked for.
[[nodiscard]] bool run_exchange(Bench const& bench);
[[nodiscard]] bool run_moe(Bench const& bench);

/// Collective: whether the bytes are equal on all ranks; a rank where they differ says at which byte of `what`.
[[nodiscard]] bool all_equal(Bench const& bench, std::string const& what, std::span<std::byte const> of_davit,
                             std::span<std::byte const> of_peer);

/// What a call of davit took, all ranks together.
struct Moved {
  davit::Stats stats;
  std::optional<std::uint64_t> launches;  ///< kernels, on a GPU
};
/// Collective: runs `call` once, to its end. The payload is what must cross at least.
[[nodiscard]] Moved moved_by(Bench const& bench, std::function<void()> const& call);

/// Bytes that a rank's links took, up and down together, the ranks' mean.
[[nodiscard]] double crossings_of(Bench const& bench, davit::Stats const& moved);
/// What went between nodes, and kernels; empty where there are none to count.
[[nodiscard]] std::string format_beside(Moved const& moved);
/// Whether counts of the peer's calls are MPI's.
[[nodiscard]] bool uses_mpi(std::string const& peer);

}  // namespace perf
