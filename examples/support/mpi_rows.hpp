// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI_Alltoallv counted in rows of a fixed length, so that the bytes may be more than an int holds.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "transports/host/kernels.hpp"

namespace support {

/// Rows of each rank, and where they begin, in rows.
struct RowBlocks {
  std::vector<int> counts;
  std::vector<int> places;
};

class MpiRows {
 public:
  MpiRows(std::size_t row_bytes, MPI_Comm comm);
  MpiRows(MpiRows const&) = delete;
  MpiRows& operator=(MpiRows const&) = delete;
  ~MpiRows();
  void alltoallv(std::byte const* send, RowBlocks const& sent, std::byte* recv, RowBlocks const& taken) const;

 private:
  MPI_Comm comm_;
  MPI_Datatype type_{};
};

/// How rows are moved into a buffer of `bytes`: past the caches where they would not stay there, as davit does.
[[nodiscard]] davit::host::Stores stores_for(std::size_t bytes) noexcept;

}  // namespace support
