// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchange behind MPI_Alltoallv and its kin.
#pragma once

#include <mpi.h>

#include "bootstrap/mpi_bootstrap.hpp"
#include "runtime/interposer/sides.hpp"
#include "runtime/interposer/taken.hpp"

namespace davit::drop_in {

/// By davit, blocking.
void alltoallv(Attached& at, Given const& send, Given const& recv, Stage& stage);
/// Calls alltoallv with what davit refuses.
void refuse_alltoallv(Attached& at);

/// @param mpi does the same by the MPI library. @returns an MPI error code, which the program's handler was told.
template <class Mpi>
int exchange(Kind kind, Given const& send, Given const& recv, MPI_Comm comm, Mpi const& mpi) {
  int code = MPI_SUCCESS;
  auto* const at = taker_of(comm, kind, code);
  if (code != MPI_SUCCESS) return report_error(comm, code);
  if (at == nullptr) {
    Inside const inside;
    return mpi();
  }
  return run(
      *at, kind, [&](Stage& stage) { alltoallv(*at, send, recv, stage); }, [&] { refuse_alltoallv(*at); },
      send.data != bootstrap::in_place_buffer, mpi);
}

}  // namespace davit::drop_in
