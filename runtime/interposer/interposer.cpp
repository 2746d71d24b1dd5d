// SPDX-License-Identifier: Apache-2.0
/// @file
/// libdavit_mpi.so: MPI's blocking collectives under both of their names. davit's own calls, and what is not to be
/// taken, go on to the MPI library.
#include "davit/davit_mpi.h"
#include "runtime/factory.hpp"
#include "runtime/interposer/next.hpp"
#include "runtime/progress.hpp"

using davit::drop_in::Kind;
using davit::drop_in::next;
using davit::drop_in::passes;

namespace {

/// Made before main, so that it outlives what the program has called at its exit, MPI_Finalize among it.
[[gnu::constructor]] void make_what_lasts() { static_cast<void>(davit::detail::Progress::of_process()); }

}  // namespace

extern "C" {

DAVIT_EXPORT int PMPI_Alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[], MPI_Datatype sendtype,
                                void* recvbuf, int const recvcounts[], int const rdispls[], MPI_Datatype recvtype,
                                MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Alltoallv)>("PMPI_Alltoallv");
  return (passes(Kind::alltoallv) ? real : davit_alltoallv)(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                                                            rdispls, recvtype, comm);
}

DAVIT_EXPORT int PMPI_Alltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                               MPI_Datatype recvtype, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Alltoall)>("PMPI_Alltoall");
  return (passes(Kind::alltoall) ? real : davit_alltoall)(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                                          comm);
}

DAVIT_EXPORT int PMPI_Allgatherv(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                 int const recvcounts[], int const displs[], MPI_Datatype recvtype, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Allgatherv)>("PMPI_Allgatherv");
  return (passes(Kind::allgatherv) ? real : davit_allgatherv)(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs,
                                                              recvtype, comm);
}

DAVIT_EXPORT int PMPI_Reduce_scatter(void const* sendbuf, void* recvbuf, int const recvcounts[], MPI_Datatype datatype,
                                     MPI_Op op, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Reduce_scatter)>("PMPI_Reduce_scatter");
  return (passes(Kind::reduce_scatter) ? real : davit_reduce_scatter)(sendbuf, recvbuf, recvcounts, datatype, op, comm);
}

DAVIT_EXPORT int PMPI_Neighbor_alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[],
                                         MPI_Datatype sendtype, void* recvbuf, int const recvcounts[],
                                         int const rdispls[], MPI_Datatype recvtype, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Neighbor_alltoallv)>("PMPI_Neighbor_alltoallv");
  return (passes(Kind::neighbor_alltoallv) ? real : davit_neighbor_alltoallv)(
      sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
}

/// An extension of some MPI libraries. Programs that hear 1 may hand device buffers to every call, of which davit takes
/// few: so it only says so when asked to.
DAVIT_EXPORT int MPIX_Query_cuda_support() {
  static auto* const real = next<int()>("MPIX_Query_cuda_support");
  auto* const backend = davit::detail::device_backend();
  if (davit::drop_in::switches().claims_cuda && backend != nullptr && backend->shows_a_device()) return 1;
  return real != nullptr ? real() : 0;
}
}

DAVIT_ALSO_AS(MPI_Alltoallv, PMPI_Alltoallv);
DAVIT_ALSO_AS(MPI_Alltoall, PMPI_Alltoall);
DAVIT_ALSO_AS(MPI_Allgatherv, PMPI_Allgatherv);
DAVIT_ALSO_AS(MPI_Reduce_scatter, PMPI_Reduce_scatter);
DAVIT_ALSO_AS(MPI_Neighbor_alltoallv, PMPI_Neighbor_alltoallv);
