// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a process holds of the system: descriptors, mappings, files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace davit::test {

/// A new directory on the tmpfs of shared memory, removed with all that is in it.
class SharedDirectory {
 public:
  SharedDirectory();
  ~SharedDirectory();
  SharedDirectory(SharedDirectory const&) = delete;
  SharedDirectory& operator=(SharedDirectory const&) = delete;
  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  /// Names in it.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::string path_;
};

/// More bytes than /dev/shm has left, in pages, and few enough to be mapped.
[[nodiscard]] std::size_t more_than_free();
/// Open descriptors of this process.
[[nodiscard]] std::size_t open_descriptors();
/// Shared mappings of this process.
[[nodiscard]] std::size_t shared_mappings();
/// Memory of this process that is resident, in bytes.
[[nodiscard]] std::size_t resident_bytes();
/// Names in /dev/shm that a segment of process `pid` might have.
[[nodiscard]] std::vector<std::string> segment_names(int pid);

}  // namespace davit::test
