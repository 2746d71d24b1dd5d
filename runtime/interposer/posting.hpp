// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the interposer's nonblocking and persistent calls begin.
#pragma once

#include "runtime/interposer/next.hpp"
#include "runtime/interposer/pending.hpp"
#include "runtime/interposer/taken.hpp"

namespace davit::drop_in {

/// What davit does a nonblocking call with, or null where MPI does it. Local: davit's communicator is there only after
/// a blocking call, which all ranks make at the same place among their collectives, so all decide alike.
[[nodiscard]] Attached* poster_of(MPI_Comm comm, Kind kind) noexcept;
/// @returns an MPI error code, which the program's handler was told.
int post(Attached& at, Kind kind, Given const& send, Given const& recv, MPI_Request* request);
/// As post, of a persistent call: collective.
int prepare(Attached& at, Kind kind, Given const& send, Given const& recv, MPI_Request* request);

/// @param mpi does the same by the MPI library
template <class Mpi>
int post_or_pass(Kind kind, Given const& send, Given const& recv, MPI_Comm comm, MPI_Request* request, Mpi const& mpi) {
  auto* const at = passes(kind) ? nullptr : poster_of(comm, kind);
  return at == nullptr ? mpi() : post(*at, kind, send, recv, request);
}

template <class Mpi>
int prepare_or_pass(Kind kind, Given const& send, Given const& recv, MPI_Comm comm, MPI_Request* request,
                    Mpi const& mpi) {
  int code = MPI_SUCCESS;
  auto* const at = passes(kind) ? nullptr : taker_of(comm, kind, code);
  if (code != MPI_SUCCESS) return report_error(comm, code);
  return at == nullptr ? mpi() : prepare(*at, kind, send, recv, request);
}

}  // namespace davit::drop_in
