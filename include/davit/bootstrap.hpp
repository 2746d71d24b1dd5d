// SPDX-License-Identifier: Apache-2.0
/// @file
/// Who is there: the control plane under a communicator. It is used to set up, never on the data path.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "davit/export.hpp"

namespace davit {

using Deadline = std::chrono::steady_clock::time_point;

/// A fixed group of ranks that can exchange a few bytes. Collective calls are made by all ranks in the same order, by
/// one thread at a time. Implementations: MPI (davit/mpi.hpp) and threads of one process.
class DAVIT_EXPORT Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  Bootstrap(Bootstrap const&) = delete;
  Bootstrap& operator=(Bootstrap const&) = delete;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Node number of each rank, as far as the launcher knows: equal numbers share a host, in [0, size).
  [[nodiscard]] virtual std::span<int const> nodes() const noexcept = 0;

  /// Collective: every rank's `mine` (same length on all ranks, else undefined), rank rising, into `all`
  /// (`mine.size() * size()` bytes) on every rank.
  /// @throws TimeoutError naming the ranks that did not come; SystemError when the layer below fails.
  virtual void allgather(std::span<std::byte const> mine, std::span<std::byte> all, Deadline deadline) = 0;

  /// Collective: ranks of equal `color` (>= 0) form a group, ordered by `key`, then by rank here; color < 0: none, and
  /// the result is null. @throws as allgather.
  [[nodiscard]] virtual std::shared_ptr<Bootstrap> split(int color, int key, Deadline deadline) = 0;

  /// Called now and then by waiting collectives, so that a launcher with work of its own gets on with it. Never blocks.
  virtual void progress() noexcept {}

  /// Collective: returns when all ranks have called it. @throws as allgather.
  void barrier(Deadline deadline) { allgather({}, {}, deadline); }

 protected:
  Bootstrap() = default;
};

/// Bootstraps of `n` ranks that are threads of this process: element r belongs to the thread that plays rank r. Each
/// rank needs its own, which is why this gives `n` and not one. @throws UsageError if n < 1.
[[nodiscard]] DAVIT_EXPORT std::vector<std::shared_ptr<Bootstrap>> threads(int n);

}  // namespace davit
