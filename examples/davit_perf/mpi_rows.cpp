// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/mpi_rows.hpp"

#include "examples/support/world.hpp"

namespace perf {

MpiRows::MpiRows(std::size_t row_bytes, MPI_Comm comm) : comm_(comm) {
  support::check(MPI_Type_contiguous(static_cast<int>(row_bytes), MPI_BYTE, &type_), "MPI_Type_contiguous");
  support::check(MPI_Type_commit(&type_), "MPI_Type_commit");
}

MpiRows::~MpiRows() { MPI_Type_free(&type_); }

void MpiRows::alltoallv(std::byte const* send, std::vector<int> const& send_rows, std::vector<int> const& send_places,
                        std::byte* recv, std::vector<int> const& recv_rows, std::vector<int> const& recv_places) const {
  support::check(MPI_Alltoallv(send, send_rows.data(), send_places.data(), type_, recv, recv_rows.data(),
                               recv_places.data(), type_, comm_),
                 "MPI_Alltoallv");
}

davit::host::Stores stores_for(std::size_t bytes) noexcept {
  constexpr std::size_t most_cached = std::size_t{4} << 20;
  return bytes > most_cached ? davit::host::Stores::streaming : davit::host::Stores::cached;
}

int places_of(std::vector<int> const& counts, std::vector<int>& places) {
  int total = 0;
  places.clear();
  for (int const count : counts) {
    places.push_back(total);
    total += count;
  }
  return total;
}

}  // namespace perf
