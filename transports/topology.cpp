// SPDX-License-Identifier: Apache-2.0
#include "transports/topology.hpp"

#include <hwloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "davit/error.hpp"

namespace davit {

struct Topology::Handle {
  hwloc_topology_t const topology;
  explicit Handle(hwloc_topology_t loaded) noexcept : topology(loaded) {}
  Handle(Handle const&) = delete;
  Handle& operator=(Handle const&) = delete;
  ~Handle() { hwloc_topology_destroy(topology); }
};

namespace {

template <std::size_t Size>
std::bitset<Size> mask_of(hwloc_const_bitmap_t bitmap) noexcept {
  std::bitset<Size> mask;
  if (bitmap == nullptr) return mask;
  for (std::size_t bit = 0; bit < Size; ++bit) mask[bit] = hwloc_bitmap_isset(bitmap, static_cast<unsigned>(bit)) != 0;
  return mask;
}

hwloc_obj_t package_of(hwloc_obj_t object) noexcept {
  while (object != nullptr && object->type != HWLOC_OBJ_PACKAGE) object = object->parent;
  return object;
}

/// What a node is, where it is not plain host memory beside CPUs.
std::string kind_of(hwloc_obj_t node, bool sizes_known) {
  char const* kind = node->subtype;
  if (kind == nullptr) kind = hwloc_obj_get_info_by_name(node, "Type");
  if (kind != nullptr && std::strcmp(kind, "DRAM") != 0) return kind;
  if (node->cpuset == nullptr || hwloc_bitmap_iszero(node->cpuset) != 0) return "without CPUs";
  if (sizes_known && node->attr->numanode.local_memory == 0) return "empty";
  return "DRAM";
}

void read_nodes(hwloc_topology_t topology, Machine& machine) {
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object)) != nullptr) {
    machine.packages.push_back({static_cast<int>(object->os_index), std::max(0, hwloc_bitmap_weight(object->cpuset))});
  }
  bool sizes_known = false;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    sizes_known = sizes_known || object->attr->numanode.local_memory > 0;
  }
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    NumaNode node;
    node.os_index = static_cast<int>(object->os_index);
    node.bytes = object->attr->numanode.local_memory;
    node.kind = kind_of(object, sizes_known);
    node.holds_slots = node.kind == "DRAM";
    // A file may have packages that hwloc lists on no level.
    if (auto* const package = package_of(object);
        package != nullptr && package->logical_index < machine.packages.size()) {
      node.package = static_cast<int>(package->logical_index);
    }
    node.cpus = mask_of<CpuMask{}.size()>(object->cpuset);
    machine.nodes.push_back(std::move(node));
  }
  // In old files nodes lie above packages.
  for (auto& node : machine.nodes) {
    std::vector<int> within;
    while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object)) != nullptr) {
      auto const cpus = mask_of<CpuMask{}.size()>(object->cpuset);
      if ((cpus & node.cpus).any()) within.push_back(static_cast<int>(object->logical_index));
    }
    if (node.package < 0 && within.size() == 1) node.package = within.front();
  }
  std::ranges::sort(machine.nodes, {}, &NumaNode::os_index);
  auto* const root = hwloc_get_root_obj(topology);
  machine.cpus = std::max(0, hwloc_bitmap_weight(root->cpuset));
  machine.forbidden = mask_of<NodeMask{}.size()>(root->complete_nodeset) &
                      ~mask_of<NodeMask{}.size()>(hwloc_topology_get_allowed_nodeset(topology));
  // The last level is the deepest one above which no cache lies: L3 on most machines, L2 on some.
  for (auto const type : {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
      machine.last_level_cache_bytes += object->attr->cache.size;
    }
    if (machine.last_level_cache_bytes > 0) break;
  }
}

using PciAttributes = decltype(hwloc_obj_attr_u::pcidev);

/// A display or processing accelerator of a maker of GPUs, but for a display chip on server boards.
bool is_gpu(PciAttributes const& pci) noexcept {
  auto const base = pci.class_id >> 8;
  if (base != 0x03 && base != 0x12) return false;
  if (pci.vendor_id == 0x1002) return pci.device_id != 0x515e;
  return pci.vendor_id == 0x10de;
}

PciAddress address_of(PciAttributes const& pci) noexcept { return {pci.domain, pci.bus, pci.dev, pci.func}; }

std::string name_of(hwloc_obj_t device) {
  for (auto const* const key : {"PCIDevice", "GPUModel"}) {
    if (char const* const name = hwloc_obj_get_info_by_name(device, key)) return name;
  }
  if (device->name != nullptr && *device->name != '\0') return device->name;
  char text[24];
  std::snprintf(text, sizeof text, "%s %04x", device->attr->pcidev.vendor_id == 0x10de ? "NVIDIA" : "AMD",
                unsigned{device->attr->pcidev.device_id});
  return text;
}

/// What the kernel says; a GPU at rest may run its link slower, so the most is asked for.
int width_by_kernel(PciAddress const& pci) {
  std::ifstream file("/sys/bus/pci/devices/" + pci.text() + "/max_link_width");
  int width = 0;
  return file >> width && width > 0 && width <= 32 ? width : 0;
}

int root_complex_of(hwloc_obj_t host_bridge, std::vector<int> const& numa, Machine& machine) {
  auto const& below = host_bridge->attr->bridge.downstream.pci;
  char name[24];
  std::snprintf(name, sizeof name, "%04x:%02x", unsigned{below.domain}, unsigned{below.secondary_bus});
  auto const found = std::ranges::find(machine.root_complexes, name, &RootComplex::name);
  if (found == machine.root_complexes.end()) {
    machine.root_complexes.push_back({name, numa});
    return static_cast<int>(machine.root_complexes.size()) - 1;
  }
  return static_cast<int>(found - machine.root_complexes.begin());
}

void read_gpus(hwloc_topology_t topology, Machine& machine, bool live) {
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_pcidev(topology, device)) != nullptr) {
    auto const& pci = device->attr->pcidev;
    if (!is_gpu(pci)) continue;
    Gpu gpu;
    gpu.pci = address_of(pci);
    gpu.vendor = pci.vendor_id;
    gpu.device = pci.device_id;
    gpu.pci_class = pci.class_id;
    gpu.name = name_of(device);
    gpu.link_gigabytes = pci.linkspeed > 0 && pci.linkspeed < 10000 ? static_cast<double>(pci.linkspeed) : 0;
    if (live) gpu.link_width = width_by_kernel(gpu.pci);
    if (auto* const near = hwloc_get_non_io_ancestor_obj(topology, device)) {
      auto const nodes = mask_of<NodeMask{}.size()>(near->nodeset);
      for (auto const& node : machine.nodes) {
        if (node.holds_slots && static_cast<std::size_t>(node.os_index) < nodes.size() &&
            nodes[static_cast<std::size_t>(node.os_index)]) {
          gpu.numa.push_back(node.os_index);
        }
      }
    }
    for (auto* above = device->parent; above != nullptr && above->type == HWLOC_OBJ_BRIDGE; above = above->parent) {
      if (above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
        gpu.root_complex = root_complex_of(above, gpu.numa, machine);
        break;
      }
      gpu.bridges.insert(gpu.bridges.begin(), Bridge{address_of(above->attr->bridge.upstream.pci)});
    }
    machine.gpus.push_back(std::move(gpu));
  }
  std::ranges::sort(machine.gpus, {}, &Gpu::pci);
}

/// Major version that a file's topology element names; 0 where it names none, -1 where there is no such element.
long version_in(std::string const& file) {
  std::ifstream stream(file);
  if (!stream) throw SystemError("davit: machine file '" + file + "' cannot be read: " + std::strerror(errno));
  std::string head(std::size_t{64} << 10, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(stream.gcount()));
  auto const element = head.find("<topology");
  if (element == std::string::npos) return -1;
  auto const tag = head.substr(element, head.find('>', element) - element);
  auto const at = tag.find("version=");
  return at == std::string::npos ? 0 : std::strtol(tag.c_str() + std::min(tag.size(), at + 9), nullptr, 10);
}

/// Refuses what hwloc would refuse without saying why.
void check_version(std::string const& file) {
  auto const refuse = [&](std::string const& why) {
    throw SystemError("davit: machine file '" + file + "' cannot be read: " + why);
  };
  auto const version = version_in(file);
  auto const own = static_cast<long>(hwloc_get_api_version() >> 16);
  if (version < 0) refuse("it is no hwloc XML");
  if (version > own) {
    refuse("it was written by hwloc " + std::to_string(version) + ", and this is " + Topology::library() +
           " (have it written with lstopo --export-xml-flags v" + std::to_string(own) + ")");
  }
}

hwloc_topology_t load(std::string const& file) {
  if (!file.empty()) check_version(file);
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw SystemError("davit: hwloc cannot be initialised");
  // Before loading: the default leaves every I/O object out, even of a file.
  bool const loaded = hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
                      hwloc_topology_set_type_filter(topology, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
                      (file.empty() || hwloc_topology_set_xml(topology, file.c_str()) == 0) &&
                      hwloc_topology_load(topology) == 0;
  if (loaded) return topology;
  int const error = errno != 0 ? errno : EINVAL;
  hwloc_topology_destroy(topology);
  if (file.empty()) throw SystemError("davit: hwloc cannot read this machine");
  throw SystemError("davit: machine file '" + file +
                    "' cannot be read: it is damaged (hwloc says: " + std::strerror(error) + ")");
}

std::string file_in_environment() {
  // Named to hwloc by hand: left to the environment it would fall back to this machine without a word.
  char const* const file = std::getenv("HWLOC_XMLFILE");
  return file == nullptr ? "" : file;
}

}  // namespace

Topology const& Topology::of_this_machine() {
  // Never destroyed: hwloc's plugins leave memory of their own behind when they are unloaded.
  static auto const* const topology = new Topology(file_in_environment());
  return *topology;
}

Topology::Topology(std::string const& file) : handle_(std::make_unique<Handle>(load(file))) {
  machine_.source = file.empty() ? "this machine" : file;
  read_nodes(handle_->topology, machine_);
  read_gpus(handle_->topology, machine_, is_this_machine());
}

Topology::~Topology() = default;

bool Topology::is_this_machine() const noexcept { return hwloc_topology_is_thissystem(handle_->topology) != 0; }

CpuMask Topology::usable_cpus() noexcept {
  cpu_set_t set;
  CpuMask mask{};
  if (sched_getaffinity(0, sizeof set, &set) != 0) return mask;
  for (std::size_t cpu = 0; cpu < std::min<std::size_t>(CPU_SETSIZE, mask.size()); ++cpu) {
    mask[cpu] = CPU_ISSET(cpu, &set);
  }
  return mask;
}

bool Topology::keep_thread_to(CpuMask const& cpus) noexcept {
  auto const both = cpus & usable_cpus();
  if (both.none()) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (std::size_t cpu = 0; cpu < std::min<std::size_t>(CPU_SETSIZE, both.size()); ++cpu) {
    if (both[cpu]) CPU_SET(cpu, &set);
  }
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

bool Topology::bind_near_caller(void* data, std::size_t bytes) const noexcept {
  auto* const topology = handle_->topology;
  if (!is_this_machine() || hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) return false;
  hwloc_bitmap_t const cpus = hwloc_bitmap_alloc();
  if (cpus == nullptr) return false;
  bool const bound =
      hwloc_get_last_cpu_location(topology, cpus, HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_set_area_membind(topology, data, bytes, cpus, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_NOCPUBIND) == 0;
  hwloc_bitmap_free(cpus);
  return bound;
}

int Topology::bind(void* data, std::size_t bytes, int node) const noexcept {
  if (!is_this_machine()) return ENOTSUP;
  hwloc_bitmap_t const nodes = hwloc_bitmap_alloc();
  if (nodes == nullptr) return ENOMEM;
  hwloc_bitmap_only(nodes, static_cast<unsigned>(node));
  errno = EINVAL;
  int const flags = HWLOC_MEMBIND_STRICT | HWLOC_MEMBIND_NOCPUBIND | HWLOC_MEMBIND_BYNODESET;
  bool const bound = hwloc_set_area_membind(handle_->topology, data, bytes, nodes, HWLOC_MEMBIND_BIND, flags) == 0;
  int const error = errno;
  hwloc_bitmap_free(nodes);
  return bound ? 0 : error;
}

int Topology::node_of(void const* data) const noexcept {
  hwloc_bitmap_t const nodes = is_this_machine() ? hwloc_bitmap_alloc() : nullptr;
  if (nodes == nullptr) return -1;
  int const node = hwloc_get_area_memlocation(handle_->topology, data, 1, nodes, HWLOC_MEMBIND_BYNODESET) == 0
                       ? hwloc_bitmap_first(nodes)
                       : -1;
  hwloc_bitmap_free(nodes);
  return node;
}

NodeMask Topology::memory_policy() const noexcept {
  NodeMask mask;
  hwloc_bitmap_t const nodes = is_this_machine() ? hwloc_bitmap_alloc() : nullptr;
  if (nodes == nullptr) return mask;
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
  int const flags = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;
  if (hwloc_get_membind(handle_->topology, nodes, &policy, flags) == 0 && policy == HWLOC_MEMBIND_BIND) {
    mask = mask_of<NodeMask{}.size()>(nodes);
  }
  hwloc_bitmap_free(nodes);
  return mask;
}

std::string Topology::library() { return "hwloc " HWLOC_VERSION; }

void try_topology_file(std::string const& file) {
  check_version(file);
  constexpr int taken = 0;
  constexpr int refused = 42;  // by an error that the caller meets again, with its text
  auto const child = fork();
  if (child < 0) throw SystemError("davit: fork: " + std::string(std::strerror(errno)));
  if (child == 0) {
    rlimit const none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(refused);  // what it says as it dies helps nobody
    int code = taken;
    try {
      Topology const topology(file);
    } catch (...) {
      code = refused;
    }
    _exit(code);
  }
  auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (ended == child && WIFEXITED(status) && (WEXITSTATUS(status) == taken || WEXITSTATUS(status) == refused)) return;
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  throw SystemError("davit: machine file '" + file + "' cannot be read: it is damaged, and " + Topology::library() +
                    (ended == 0 ? " does not come to an end with it" : " crashes on it"));
}

}  // namespace davit
