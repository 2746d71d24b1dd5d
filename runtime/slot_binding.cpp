// SPDX-License-Identifier: Apache-2.0
#include "runtime/slot_binding.hpp"

#include <cerrno>
#include <cstring>

#include "runtime/log.hpp"
#include "transports/topology.hpp"

namespace davit::detail {
namespace {

/// A page that was reserved but never touched lies nowhere that the kernel would tell.
void touch(std::byte const* page) noexcept { static_cast<void>(*const_cast<std::byte const volatile*>(page)); }

}  // namespace

void SlotBinding::bind_to(std::byte* slots, std::size_t bytes, int node) {
  auto const& topology = Topology::of_this_machine();
  // With one node there is nothing to choose, and a machine from a file cannot be bound.
  if (!topology.is_this_machine() || topology.machine().nodes.size() < 2) return;
  if (int const error = topology.bind(slots, bytes, node); error != 0) {
    refused_ = error;
    refused_node_ = node;
    return;
  }
  for (std::size_t at = 0; at < bytes; at += geometry_.slot_stride()) bound_.push_back({slots + at, node});
}

void SlotBinding::bind(std::byte* slots, std::size_t bytes, std::uint32_t site) {
  if (plan_.policy == Placement::interleave && !plan_.nodes.empty()) {
    auto const stride = geometry_.slot_stride();
    for (std::size_t slot = 0; slot < geometry_.slots; ++slot) {
      bind_to(slots + slot * stride, stride, plan_.nodes[slot % plan_.nodes.size()]);
    }
    return;
  }
  int const node = geometry_.rings == 1 ? plan_.ranks[static_cast<std::size_t>(rank_)].node : plan_.node_of_site(site);
  if (node >= 0) return bind_to(slots, bytes, node);
  if (!Topology::of_this_machine().bind_near_caller(slots, bytes)) {
    log(LogLevel::debug, "slots are left where the kernel puts them");
  }
}

void SlotBinding::report(std::string const& communicator) const {
  if (refused_ != 0) {
    warn_once("the kernel refused to bind slots to NUMA node " + std::to_string(refused_node_) + " (" +
              std::strerror(refused_) + "); let cpuset.mems hold that node, in docker also --cap-add SYS_NICE");
  }
  std::size_t right = 0;
  int elsewhere = -1;
  for (auto const& one : bound_) {
    touch(one.slot);
    int const node = Topology::of_this_machine().node_of(one.slot);
    if (node == one.node) {
      ++right;
    } else if (node >= 0) {
      elsewhere = node;
    }
  }
  if (elsewhere >= 0) {
    warn_once("slots lie on NUMA node " + std::to_string(elsewhere) +
              " and not where they were bound; free memory there, or " +
              "mount the tmpfs of DAVIT_SHM_DIR without mpol=");
  }
  if (!bound_.empty()) {
    log(LogLevel::info, "communicator '" + communicator + "', rank " + std::to_string(rank_) + ": " +
                            std::to_string(right) + " of " + std::to_string(bound_.size()) +
                            " slots are on their NUMA nodes");
  }
}

}  // namespace davit::detail
