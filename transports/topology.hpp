// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machine as hwloc sees it. The only user of hwloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace davit {

/// The machine of this process, loaded once. Thread-safe.
class Topology {
 public:
  [[nodiscard]] static Topology const& of_this_machine();
  ~Topology();
  Topology(Topology const&) = delete;
  Topology& operator=(Topology const&) = delete;

  /// Bytes of all last-level caches of the node together; 0 if unknown.
  [[nodiscard]] std::size_t last_level_cache_bytes() const noexcept { return cache_bytes_; }
  /// Processing units that the calling thread may run on. Trivially copyable, so that ranks can tell each other.
  using CpuMask = std::array<std::uint64_t, 16>;
  [[nodiscard]] static CpuMask usable_cpus() noexcept;
  /// Binds untouched pages to the NUMA node that the calling thread runs on. @returns false, with no effect, where the
  /// kernel refuses or there is one node only.
  bool bind_near_caller(void* data, std::size_t bytes) const noexcept;
  /// "hwloc 2.9.0", for reports.
  [[nodiscard]] static std::string library();

 private:
  struct Handle;
  Topology();
  std::unique_ptr<Handle> handle_;
  std::size_t cache_bytes_ = 0;
};

}  // namespace davit
