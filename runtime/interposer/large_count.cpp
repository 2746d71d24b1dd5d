// SPDX-License-Identifier: Apache-2.0
/// @file
/// The forms of MPI 4 with large counts; built where the MPI library has them.
#include "davit/export.hpp"
#include "runtime/interposer/collectives.hpp"
#include "runtime/interposer/posting.hpp"

using namespace davit::drop_in;

extern "C" {

DAVIT_EXPORT int PMPI_Alltoallv_c(void const* sendbuf, MPI_Count const sendcounts[], MPI_Aint const sdispls[],
                                  MPI_Datatype sendtype, void* recvbuf, MPI_Count const recvcounts[],
                                  MPI_Aint const rdispls[], MPI_Datatype recvtype, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Alltoallv_c)>("PMPI_Alltoallv_c");
  if (passes(Kind::alltoallv))
    return real(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
  return exchange(Kind::alltoallv, blocks_of(sendbuf, sendcounts, sdispls, sendtype),
                  blocks_of(recvbuf, recvcounts, rdispls, recvtype), comm, [&] {
                    return real(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
                  });
}

DAVIT_EXPORT int PMPI_Alltoall_c(void const* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                                 MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Alltoall_c)>("PMPI_Alltoall_c");
  if (passes(Kind::alltoall)) return real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
  return exchange(Kind::alltoall, blocks_of(sendbuf, sendcount, sendtype), blocks_of(recvbuf, recvcount, recvtype),
                  comm, [&] { return real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

DAVIT_EXPORT int PMPI_Ialltoallv_c(void const* sendbuf, MPI_Count const sendcounts[], MPI_Aint const sdispls[],
                                   MPI_Datatype sendtype, void* recvbuf, MPI_Count const recvcounts[],
                                   MPI_Aint const rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
                                   MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Ialltoallv_c)>("PMPI_Ialltoallv_c");
  return post_or_pass(Kind::ialltoallv, blocks_of(sendbuf, sendcounts, sdispls, sendtype),
                      blocks_of(recvbuf, recvcounts, rdispls, recvtype), comm, request, [&] {
                        return real(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                                    comm, request);
                      });
}

DAVIT_EXPORT int PMPI_Ialltoall_c(void const* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                                  MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Ialltoall_c)>("PMPI_Ialltoall_c");
  return post_or_pass(Kind::ialltoall, blocks_of(sendbuf, sendcount, sendtype), blocks_of(recvbuf, recvcount, recvtype),
                      comm, request,
                      [&] { return real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request); });
}

DAVIT_EXPORT int PMPI_Alltoallv_init_c(void const* sendbuf, MPI_Count const sendcounts[], MPI_Aint const sdispls[],
                                       MPI_Datatype sendtype, void* recvbuf, MPI_Count const recvcounts[],
                                       MPI_Aint const rdispls[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                       MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Alltoallv_init_c)>("PMPI_Alltoallv_init_c");
  return prepare_or_pass(Kind::ialltoallv, blocks_of(sendbuf, sendcounts, sdispls, sendtype),
                         blocks_of(recvbuf, recvcounts, rdispls, recvtype), comm, request, [&] {
                           return real(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                                       comm, info, request);
                         });
}

DAVIT_EXPORT int PMPI_Alltoall_init_c(void const* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                                      MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                                      MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Alltoall_init_c)>("PMPI_Alltoall_init_c");
  return prepare_or_pass(
      Kind::ialltoall, blocks_of(sendbuf, sendcount, sendtype), blocks_of(recvbuf, recvcount, recvtype), comm, request,
      [&] { return real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request); });
}
}

DAVIT_ALSO_AS(MPI_Alltoallv_c, PMPI_Alltoallv_c);
DAVIT_ALSO_AS(MPI_Alltoall_c, PMPI_Alltoall_c);
DAVIT_ALSO_AS(MPI_Ialltoallv_c, PMPI_Ialltoallv_c);
DAVIT_ALSO_AS(MPI_Ialltoall_c, PMPI_Ialltoall_c);
DAVIT_ALSO_AS(MPI_Alltoallv_init_c, PMPI_Alltoallv_init_c);
DAVIT_ALSO_AS(MPI_Alltoall_init_c, PMPI_Alltoall_init_c);
