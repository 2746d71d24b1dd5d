/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * MPI's collectives by davit, for C and C++: the signatures, the meaning and the error codes of the MPI functions of
 * the same name. A communicator of davit is made at the first call on an MPI communicator (collective, as the call
 * itself), hangs on it as an attribute and goes with MPI_Comm_free or MPI_Finalize.
 *
 * What davit does not do is handed to the MPI library, on all ranks alike: inter-communicators, communicators of one
 * rank, ranks on several nodes, a communicator of davit that could not be made on some rank. One log line says why.
 *
 * Any datatype: contiguous ones go as they lie, others through MPI_Pack and MPI_Unpack. Errors go to the communicator's
 * error handler: MPI_ERR_TRUNCATE where a pair's bytes differ, MPI_ERR_COUNT for a negative count, MPI_ERR_TYPE for no
 * datatype or one that cannot be taken, MPI_ERR_OTHER for the rest and on ranks whose peer refused; the next call
 * works. A wait ends after DAVIT_TIMEOUT if that is set, else after a day, since a legal MPI program may let a rank
 * come late; a dead rank is noticed at once. */
#pragma once

#include <mpi.h>

#include "davit/export.hpp"

#ifdef __cplusplus
extern "C" {
#endif

/** As MPI_Alltoallv. */
DAVIT_EXPORT int davit_alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[],
                                 MPI_Datatype sendtype, void* recvbuf, int const recvcounts[], int const rdispls[],
                                 MPI_Datatype recvtype, MPI_Comm comm);
/** As MPI_Alltoall. */
DAVIT_EXPORT int davit_alltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                                MPI_Datatype recvtype, MPI_Comm comm);
/** As MPI_Allgatherv. */
DAVIT_EXPORT int davit_allgatherv(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                                  int const recvcounts[], int const displs[], MPI_Datatype recvtype, MPI_Comm comm);
/** As MPI_Reduce_scatter. davit adds MPI_FLOAT by MPI_SUM, rank rising; the MPI library does the rest. */
DAVIT_EXPORT int davit_reduce_scatter(void const* sendbuf, void* recvbuf, int const recvcounts[], MPI_Datatype datatype,
                                      MPI_Op op, MPI_Comm comm);
/** As MPI_Neighbor_alltoallv. The MPI library does it where a rank is a neighbour of another in more than one way. */
DAVIT_EXPORT int davit_neighbor_alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[],
                                          MPI_Datatype sendtype, void* recvbuf, int const recvcounts[],
                                          int const rdispls[], MPI_Datatype recvtype, MPI_Comm comm);

#ifdef __cplusplus
}
#endif
