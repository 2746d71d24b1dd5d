// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machine as hwloc sees it. The only user of hwloc.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transports/machine.hpp"

namespace davit {

/// A machine, loaded once: this one, or one that a file describes. Thread-safe.
class Topology {
 public:
  /// This machine; where HWLOC_XMLFILE names a file, the one in it. @throws SystemError saying why it cannot be read.
  [[nodiscard]] static Topology const& of_this_machine();
  /// The machine in a file that hwloc or lstopo wrote. @throws SystemError naming the file and why it cannot be read.
  explicit Topology(std::string const& file);
  ~Topology();
  Topology(Topology const&) = delete;
  Topology& operator=(Topology const&) = delete;

  [[nodiscard]] Machine const& machine() const noexcept { return machine_; }
  /// Whether binding works on it: a machine from a file is not this one, and hwloc would bind nothing without a word.
  [[nodiscard]] bool is_this_machine() const noexcept;

  /// Processing units that the calling thread may run on.
  [[nodiscard]] static CpuMask usable_cpus() noexcept;
  /// Binds untouched pages to the NUMA node that the calling thread runs on. @returns false, with no effect, where the
  /// kernel refuses or there is one node only.
  bool bind_near_caller(void* data, std::size_t bytes) const noexcept;
  /// Binds untouched pages to a NUMA node, by os index. @returns 0, or why not, as errno.
  [[nodiscard]] int bind(void* data, std::size_t bytes, int node) const noexcept;
  /// The node that a page lies on, by os index; it must have been touched. -1 where nobody can tell.
  [[nodiscard]] int node_of(void const* data) const noexcept;
  /// Nodes that the calling thread's memory policy keeps to; none where it keeps to nothing in particular.
  [[nodiscard]] NodeMask memory_policy() const noexcept;
  /// Keeps the calling thread to those of the processing units that it may use. @returns whether the kernel did.
  static bool keep_thread_to(CpuMask const& cpus) noexcept;
  /// "hwloc 2.9.0", for reports.
  [[nodiscard]] static std::string library();

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
  Machine machine_;
};

/// Reads the file in a process of its own first: a damaged one may kill hwloc. @throws SystemError as the constructor
/// does, also where hwloc dies of it or does not end within 20 s. Only for programs without other threads.
void try_topology_file(std::string const& file);

}  // namespace davit
