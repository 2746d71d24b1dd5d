// SPDX-License-Identifier: Apache-2.0
/// @file
/// What both MPI recipes are made of.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "transports/host/kernels.hpp"

namespace perf {

/// Rows whose length is that of a row of the problem, between arrays: MPI_Alltoallv counted in rows, so that the bytes
/// may be more than an int holds.
class MpiRows {
 public:
  MpiRows(std::size_t row_bytes, MPI_Comm comm);
  MpiRows(MpiRows const&) = delete;
  MpiRows& operator=(MpiRows const&) = delete;
  ~MpiRows();
  void alltoallv(std::byte const* send, std::vector<int> const& send_rows, std::vector<int> const& send_places,
                 std::byte* recv, std::vector<int> const& recv_rows, std::vector<int> const& recv_places) const;

 private:
  MPI_Comm comm_;
  MPI_Datatype type_{};
};

/// Sums before each element: where each block begins. @return the total.
int places_of(std::vector<int> const& counts, std::vector<int>& places);

/// How rows are moved into a buffer of `bytes`: past the caches where they would not stay there, as davit does.
[[nodiscard]] davit::host::Stores stores_for(std::size_t bytes) noexcept;

}  // namespace perf
