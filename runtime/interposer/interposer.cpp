// SPDX-License-Identifier: Apache-2.0
/// @file
/// libdavit_mpi.so: MPI's functions under both of their names, since Fortran wrappers of some MPI libraries call PMPI_.
/// davit's own calls, and all where DAVIT_MPI=off, go on to the MPI library.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "davit/davit_mpi.h"
#include "runtime/interposer/attached.hpp"

namespace {

template <class Function>
Function* next(char const* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Read here and not with the rest of the environment, which must not trouble a program that never calls.
bool is_off() {
  char const* const value = std::getenv("DAVIT_MPI");
  return value != nullptr && std::strcmp(value, "off") == 0;
}

bool passes() {
  static bool const off = is_off();
  return off || davit::drop_in::Inside::any();
}

}  // namespace

extern "C" {

DAVIT_EXPORT int PMPI_Alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[], MPI_Datatype sendtype,
                                void* recvbuf, int const recvcounts[], int const rdispls[], MPI_Datatype recvtype,
                                MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Alltoallv)>("PMPI_Alltoallv");
  return (passes() ? real : davit_alltoallv)(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                                             recvtype, comm);
}

DAVIT_EXPORT int MPI_Alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[], MPI_Datatype sendtype,
                               void* recvbuf, int const recvcounts[], int const rdispls[], MPI_Datatype recvtype,
                               MPI_Comm comm) {
  return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
}

DAVIT_EXPORT int PMPI_Alltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                               MPI_Datatype recvtype, MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Alltoall)>("PMPI_Alltoall");
  return (passes() ? real : davit_alltoall)(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

DAVIT_EXPORT int MPI_Alltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                              MPI_Datatype recvtype, MPI_Comm comm) {
  return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}
}
