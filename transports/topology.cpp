// SPDX-License-Identifier: Apache-2.0
#include "transports/topology.hpp"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "davit/error.hpp"

namespace davit {

struct Topology::Handle {
  hwloc_topology_t topology = nullptr;
};

Topology const& Topology::of_this_machine() {
  static Topology const topology;
  return topology;
}

Topology::Topology() : handle_(std::make_unique<Handle>()) {
  if (hwloc_topology_init(&handle_->topology) != 0) throw SystemError("davit: hwloc cannot be initialised");
  if (hwloc_topology_load(handle_->topology) != 0) {
    hwloc_topology_destroy(handle_->topology);
    throw SystemError("davit: hwloc cannot read this machine");
  }
  // The last level is the deepest one above which no cache lies: L3 on most machines, L2 on some.
  for (auto const type : {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    hwloc_obj_t cache = nullptr;
    while ((cache = hwloc_get_next_obj_by_type(handle_->topology, type, cache)) != nullptr) {
      cache_bytes_ += cache->attr->cache.size;
    }
    if (cache_bytes_ > 0) break;
  }
}

Topology::~Topology() { hwloc_topology_destroy(handle_->topology); }

Topology::CpuMask Topology::usable_cpus() noexcept {
  cpu_set_t set;
  CpuMask mask{};
  if (sched_getaffinity(0, sizeof set, &set) != 0) return mask;
  for (std::size_t cpu = 0; cpu < std::min<std::size_t>(CPU_SETSIZE, mask.size() * 64); ++cpu) {
    if (CPU_ISSET(cpu, &set)) mask[cpu / 64] |= std::uint64_t{1} << cpu % 64;
  }
  return mask;
}

bool Topology::bind_near_caller(void* data, std::size_t bytes) const noexcept {
  auto* const topology = handle_->topology;
  if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) return false;
  hwloc_bitmap_t const cpus = hwloc_bitmap_alloc();
  if (cpus == nullptr) return false;
  bool const bound =
      hwloc_get_last_cpu_location(topology, cpus, HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_set_area_membind(topology, data, bytes, cpus, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_NOCPUBIND) == 0;
  hwloc_bitmap_free(cpus);
  return bound;
}

std::string Topology::library() {
  auto const version = hwloc_get_api_version();
  return "hwloc " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff) + "." +
         std::to_string(version & 0xff);
}

}  // namespace davit
