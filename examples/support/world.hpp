// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI as the programs use it for themselves: a few agreements between all ranks, and an end that does not hang.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "examples/support/failure.hpp"

namespace support {

/// @throws Failure where an MPI call says so.
void check(int mpi_result, char const* call);

/// A duplicate of MPI_COMM_WORLD that returns its errors. MPI is initialised before, and finalised after.
class World {
 public:
  World();
  World(World const&) = delete;
  World& operator=(World const&) = delete;
  ~World();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool is_root() const noexcept { return rank_ == 0; }
  [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }

  // Collective.
  void barrier() const;
  [[nodiscard]] double max(double mine) const;
  [[nodiscard]] double mean(double mine) const;
  [[nodiscard]] std::int64_t sum(std::int64_t mine) const;
  [[nodiscard]] bool all(bool mine) const;
  [[nodiscard]] bool all_equal(std::uint64_t mine) const;

  /// Prints "program: text" to stderr, with the rank where it speaks for itself alone; rank 0 alone where all raise it.
  void tell(std::string_view program, std::string_view text, Told told) const;

  /// Collective: the worst of all ranks' codes, for all to return. Where a rank does not come within the time, it ends
  /// the whole program by MPI_Abort: a rank that failed alone leaves the others inside calls that never return.
  [[nodiscard]] Exit finish(Exit mine) const;

 private:
  MPI_Comm comm_{};
  MPI_Comm end_{};  // apart, since some ranks may be inside a collective of comm_ when others give up
  int rank_ = 0;
  int size_ = 1;
};

/// First line of MPI_Get_library_version, up to a comma: "Open MPI v4.1.4".
[[nodiscard]] std::string mpi_library();

}  // namespace support
