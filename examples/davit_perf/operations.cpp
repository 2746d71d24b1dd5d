// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/operations.hpp"

#include <algorithm>

#include "examples/support/sizes.hpp"

namespace perf {

bool all_equal(Bench const& bench, std::string const& what, std::span<std::byte const> of_davit,
               std::span<std::byte const> of_peer) {
  std::string difference;
  if (of_davit.size() != of_peer.size()) {
    difference =
        std::to_string(of_davit.size()) + " bytes by davit, " + std::to_string(of_peer.size()) + " by the peer";
  } else if (auto const at = std::ranges::mismatch(of_davit, of_peer).in1; at != of_davit.end()) {
    difference =
        "byte " + std::to_string(at - of_davit.begin()) + " of " + std::to_string(of_davit.size()) + " differs";
  }
  if (!difference.empty()) {
    bench.world.tell("davit_perf", "check FAILED: " + what + ": " + difference, support::Told::by_itself);
  }
  return bench.world.all(difference.empty());
}

Moved moved_by(Bench const& bench, std::function<void()> const& call) {
  bench.device.finish();
  auto const before = bench.comm.stats();
  auto const launches_before = bench.device.launches();
  call();
  bench.device.finish();
  auto const after = bench.comm.stats();
  auto const sum = [&](std::uint64_t mine) {
    return static_cast<std::uint64_t>(bench.world.sum(static_cast<std::int64_t>(mine)));
  };
  Moved moved{};
  for (auto const field :
       {&davit::Stats::rows_up, &davit::Stats::rows_down, &davit::Stats::rows_slack, &davit::Stats::bytes_up,
        &davit::Stats::bytes_down, &davit::Stats::bytes_direct, &davit::Stats::bytes_kept, &davit::Stats::bytes_ids,
        &davit::Stats::chunks_up, &davit::Stats::bytes_wire, &davit::Stats::bytes_wire_headers,
        &davit::Stats::messages_wire}) {
    moved.stats.*field = sum(after.*field - before.*field);
  }
  if (launches_before) moved.launches = sum(*bench.device.launches() - *launches_before);
  return moved;
}

double crossings_of(Bench const& bench, davit::Stats const& moved) {
  return static_cast<double>(moved.bytes_up + moved.bytes_down) / bench.world.size();
}

std::string format_beside(Moved const& moved) {
  auto const bytes = [](std::uint64_t count) { return support::format_size(static_cast<std::int64_t>(count)); };
  std::string text;
  if (moved.stats.messages_wire > 0) {
    text += "; between nodes " + bytes(moved.stats.bytes_wire) + " and headers of " +
            bytes(moved.stats.bytes_wire_headers) + " in " + std::to_string(moved.stats.messages_wire) + " messages";
  }
  if (moved.launches) text += "; kernels of all ranks: " + std::to_string(*moved.launches);
  return text;
}

bool uses_mpi(std::string const& peer) { return peer.find("mpi") != std::string::npos; }

}  // namespace perf
