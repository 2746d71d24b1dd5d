// SPDX-License-Identifier: Apache-2.0
/// @file
/// A machine as plain data: packages, NUMA nodes, root complexes, GPUs. `topology.cpp` fills it, from the machine it
/// runs on or from a file; all else (placement, programs, tests) only reads it.
#pragma once

#include <bitset>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace davit {

/// Processing units, and NUMA nodes, by the numbers of the operating system. Trivially copyable, so that ranks can tell
/// each other; what lies above is left out.
using CpuMask = std::bitset<1024>;
using NodeMask = std::bitset<256>;

/// Where a device sits on PCI.
struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;

  auto operator<=>(PciAddress const&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  /// "0000:17:00.0", as the kernel and hwloc write it.
  [[nodiscard]] std::string text() const;
  /// Reads it, with or without domain, the domain in any width. @returns nothing where it is no address.
  [[nodiscard]] static std::optional<PciAddress> parse(std::string_view text) noexcept;
};

struct NumaNode {
  int os_index = 0;
  std::uint64_t bytes = 0;
  std::string kind;          ///< "DRAM", or what else it is: "GPUMemory", "MCDRAM", "without CPUs", "empty" ...
  bool holds_slots = false;  ///< host memory beside CPUs; slots never go elsewhere
  int package = -1;          ///< index into `packages`, -1 where it belongs to none or to several
  CpuMask cpus{};
};

struct Package {
  int os_index = 0;
  int cpus = 0;
};

/// A host bridge and all below it.
struct RootComplex {
  std::string name;       ///< domain and first bus: "0000:17"
  std::vector<int> numa;  ///< nearest nodes that can hold slots; empty: unknown
};

/// A PCI bridge between a root complex and a GPU.
struct Bridge {
  PciAddress pci;
  auto operator<=>(Bridge const&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct Gpu {
  PciAddress pci;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t pci_class = 0;
  std::string name;             ///< as hwloc knows it, else "NVIDIA 2330"
  std::vector<int> numa;        ///< nearest nodes that can hold slots, by os index; empty: unknown
  int root_complex = -1;        ///< index into `root_complexes`, -1: unknown
  std::vector<Bridge> bridges;  ///< from the root complex down
  double link_gigabytes = 0;    ///< of its link, a second and direction; 0: unknown
  int link_width = 0;           ///< lanes; 0: unknown
};

struct Machine {
  std::string source;  ///< "this machine", or the file
  std::vector<Package> packages;
  std::vector<NumaNode> nodes;
  std::vector<RootComplex> root_complexes;  ///< those with a GPU
  std::vector<Gpu> gpus;                    ///< by PCI address, rising
  NodeMask forbidden{};                     ///< nodes that a cgroup keeps from this process
  int cpus = 0;
  std::size_t last_level_cache_bytes = 0;  ///< of all last-level caches together; 0: unknown

  [[nodiscard]] NumaNode const* node(int os_index) const noexcept;
  [[nodiscard]] Gpu const* gpu(PciAddress const& pci) const noexcept;
};

}  // namespace davit
