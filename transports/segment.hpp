// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared memory that the processes of a node map. Order of a segment's life: create (address space only), bind,
/// reserve (pages; in parts if wished), tell the others by a ticket, attach there, close the descriptor. No name is
/// left in the file system: an unnamed file is passed as /proc/PID/fd/N; where that is denied, by an unguessable name
/// that lasts for the moment of mapping, and that the next job sweeps if its maker died in that moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace davit {

/// What a rank tells the others, so that they can attach. Trivially copyable; travels through a bootstrap.
struct SegmentTicket {
  std::uint64_t nonce = 0;  ///< also the segment's first 8 bytes, once its maker has written them, before others
                            ///< attach: whoever reads it there maps the right one
  std::uint64_t bytes = 0;
  std::uint64_t process = 0;        ///< random, one a process: equal means threads, which share the mapping
  std::uint64_t pid_namespace = 0;  ///< pids mean the same only in the same one
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  char name[112] = {};  ///< full path, empty unless published
};

/// A mapping that is shared by its users in this process and unmapped with the last.
using Mapping = std::shared_ptr<std::byte>;

/// A segment this process made.
class Segment {
 public:
  /// @param directory on a tmpfs. @param bytes rounded up to pages. @throws SystemError naming the directory and why.
  static Segment create(std::string const& directory, std::size_t bytes);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  [[nodiscard]] Mapping const& mapping() const noexcept { return mapping_; }
  [[nodiscard]] SegmentTicket const& ticket() const noexcept { return ticket_; }

  /// Allocates the pages of a part, so that a full file system is an error here and not SIGBUS later.
  /// @throws SystemError naming the bytes needed and free; nothing is then kept.
  void reserve(std::size_t offset, std::size_t bytes);
  /// Gives the segment a name for others to open. @throws SystemError.
  void publish_name();
  void withdraw_name() noexcept;
  /// Gives the descriptor back; attach and reserve are impossible afterwards.
  void close_descriptor() noexcept;

  /// Maps another rank's segment. @returns null where it cannot be opened or is not the one the ticket names, which is
  /// how ranks of different hosts find out.
  [[nodiscard]] static Mapping attach(SegmentTicket const& ticket);
  /// Removes names that dead processes left in `directory`.
  static void sweep(std::string const& directory) noexcept;

 private:
  Segment() = default;
  std::string directory_;
  SegmentTicket ticket_;
  Mapping mapping_;
};

}  // namespace davit
