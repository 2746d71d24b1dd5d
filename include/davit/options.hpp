// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings: the process's environment, read once, and the options of one communicator, which start from it.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "davit/export.hpp"
#include "davit/log.hpp"

namespace davit {

/// Which way a pair's bytes take on host memory.
enum class Path {
  automatic,  ///< slots for small blocks, the direct way from `direct_bytes` up where the node allows it
  slots,      ///< always through the writer's slots
  direct      ///< every non-empty block by one copy from the peer's memory; refused at creation where impossible
};

/// In which order the host engine runs what a collective submits. All but `eager` exist to prove the protocol.
enum class HostOrder {
  eager,      ///< an operation runs as soon as its queue has come to it
  queues,     ///< strict: nothing runs before all is submitted; then each queue in order, copies landing late
  submission  ///< strict: one queue, in the order of submission, copies landing late
};

/// On which NUMA node the slots of a pair lie, where ranks of a machine sit beside several.
enum class Placement {
  near_reader,  ///< beside the rank that reads them, so that its copy engine finds them near
  near_writer,  ///< beside the rank that fills them
  interleave    ///< slot by slot over all nodes that may hold them
};

/// The environment, read once a process. Each field's comment is the manual of its variable.
struct DAVIT_EXPORT Environment {
  /// DAVIT_TIMEOUT: deadline of every wait, in seconds (a decimal number above 0). Default 60.
  std::chrono::milliseconds const timeout;
  /// DAVIT_PATH: auto, slots or direct: pins the way of every pair on host memory. Default auto.
  Path const path;
  /// DAVIT_DIRECT_BYTES: least bytes of a pair's block that goes the direct way, suffixes K, M, G. Default 32K.
  std::size_t const direct_bytes;
  /// DAVIT_SLOT_BYTES: bytes of one slot, a power of two from 4K to 1G. Default 0: sized by the node's last-level
  /// caches.
  std::size_t const slot_bytes;
  /// DAVIT_SLOTS: slots in each of the two banks of an outbox, 1 to 1024. Default 0: 4, more on nodes above 9 ranks.
  int const slots;
  /// DAVIT_SHM_DIR: directory on a tmpfs that holds the segments. Default /dev/shm.
  std::string const shm_dir;
  /// DAVIT_SEGMENT: auto, descriptor or name: how a segment is passed to the node's other ranks. Default auto: by
  /// descriptor, else by an unguessable name that lasts for the moment of mapping.
  std::string const segment;
  /// DAVIT_HOST_ORDER: eager, queues or submission: order of the host engine; the last two are for tests. Default
  /// eager.
  HostOrder const host_order;
  /// DAVIT_PLACEMENT: near-reader, near-writer or interleave: NUMA node of the slots, where ranks sit beside several.
  /// Default near-reader.
  Placement const placement;
  /// DAVIT_NODES: comma-separated node numbers, one for each rank of the world, to pretend nodes in tests. Default:
  /// none.
  std::vector<int> const nodes;
  /// DAVIT_ALLOW_SHARED_GPU: 1 lets several ranks use one GPU, which is slow; 0 refuses it. Default 0.
  bool const allow_shared_gpu;
  /// DAVIT_LOG: error, warn, info or debug: what reaches the log sink. Default warn.
  LogLevel const log;
};

/// The process's environment. @throws UsageError naming the variable, its value and what it may be, at each call, when
/// one cannot be read; the first communicator therefore refuses, not some later call.
[[nodiscard]] DAVIT_EXPORT Environment const& environment();

/// Options of one communicator; each starts from the environment and must be equal on all ranks but for the timeouts,
/// `device`, `allow_shared_gpu` and `name`.
struct Options {
  /// Deadline of every wait of the communicator.
  std::chrono::milliseconds timeout = environment().timeout;
  /// Deadline of the first collective, for programs whose ranks start unevenly; unset: `timeout`.
  std::optional<std::chrono::milliseconds> first_timeout{};
  Path path = environment().path;
  std::size_t direct_bytes = environment().direct_bytes;
  std::size_t slot_bytes = environment().slot_bytes;
  int slots = environment().slots;
  HostOrder host_order = environment().host_order;
  /// The GPU of this rank, as CUDA counts them; -1: the one that the program has made current at prepare(), else the
  /// one that holds the buffers of the first call with such.
  int device = -1;
  /// Whether other ranks may use this rank's GPU too.
  bool allow_shared_gpu = environment().allow_shared_gpu;
  Placement placement = environment().placement;
  /// Appears in messages; "world" or so. Split and dup append to it.
  std::string name = "comm";
};

}  // namespace davit
