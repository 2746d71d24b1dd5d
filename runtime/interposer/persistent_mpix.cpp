// SPDX-License-Identifier: Apache-2.0
/// @file
/// Persistent calls as the extension of Open MPI 4; built where the MPI library has it.
#include <mpi.h>

#include <mpi-ext.h>

#include "davit/export.hpp"
#include "runtime/interposer/posting.hpp"

using namespace davit::drop_in;

extern "C" {

DAVIT_EXPORT int PMPIX_Alltoallv_init(void const* sendbuf, int const sendcounts[], int const sdispls[],
                                      MPI_Datatype sendtype, void* recvbuf, int const recvcounts[], int const rdispls[],
                                      MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  static auto* const real = next<decltype(PMPIX_Alltoallv_init)>("PMPIX_Alltoallv_init");
  return prepare_or_pass(Kind::ialltoallv, blocks_of(sendbuf, sendcounts, sdispls, sendtype),
                         blocks_of(recvbuf, recvcounts, rdispls, recvtype), comm, request, [&] {
                           return real(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                                       comm, info, request);
                         });
}

DAVIT_EXPORT int PMPIX_Alltoall_init(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                     int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                     MPI_Request* request) {
  static auto* const real = next<decltype(PMPIX_Alltoall_init)>("PMPIX_Alltoall_init");
  return prepare_or_pass(
      Kind::ialltoall, blocks_of(sendbuf, sendcount, sendtype), blocks_of(recvbuf, recvcount, recvtype), comm, request,
      [&] { return real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request); });
}
}

DAVIT_ALSO_AS(MPIX_Alltoallv_init, PMPIX_Alltoallv_init);
DAVIT_ALSO_AS(MPIX_Alltoall_init, PMPIX_Alltoall_init);
