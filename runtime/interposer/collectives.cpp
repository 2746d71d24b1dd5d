// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/collectives.hpp"

#include <vector>

#include "davit/davit_mpi.h"

namespace davit::drop_in {

void alltoallv(Attached& at, Given const& send, Given const& recv, Stage& stage) {
  Sides sides(at, send, recv);
  stage = {.blame = sides.blame(), .told = true, .bytes = sides.bytes()};
  auto const& from = sides.from();
  auto& to = sides.to();
  at.davit.alltoallv(sides.send(), from.counts(), from.displs(), u8, to.data(), to.counts(), to.displs(), u8);
  to.unpack();
}

void refuse_alltoallv(Attached& at) {
  at.davit.alltoallv(nullptr, {}, {}, no_such_dtype, nullptr, {}, {}, no_such_dtype);
}

namespace {

void allgatherv(Attached& at, Given const& send, Given const& recv, Stage& stage) {
  Side to(recv, static_cast<std::size_t>(at.size), at.own);
  stage.bytes = to.bytes();
  if (send.data == bootstrap::in_place_buffer) {
    to.pack();
    stage.blame = to.negative() ? MPI_ERR_COUNT : MPI_ERR_OTHER;
    stage.told = true;
    at.davit.allgatherv(in_place, 0, u8, to.data(), to.counts(), to.displs(), u8);
  } else {
    Side own(send, 1, at.own);
    own.pack();
    bool const differs = own.counts()[0] != to.counts()[static_cast<std::size_t>(at.rank)];
    stage.blame = differs ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
    if (own.negative() || to.negative()) stage.blame = MPI_ERR_COUNT;
    stage.told = true;
    at.davit.allgatherv(own.data() + own.displs()[0], own.counts()[0], u8, to.data(), to.counts(), to.displs(), u8);
  }
  to.unpack();
}

void reduce_scatter(Attached& at, void const* send, void* recv, int const* recvcounts, Stage& stage) {
  std::vector<std::int64_t> const counts(recvcounts, recvcounts + at.size);
  stage = {.blame = MPI_ERR_OTHER, .told = true};
  for (auto const count : counts) {
    stage.bytes += count * static_cast<std::int64_t>(sizeof(float));
    if (count < 0) stage.blame = MPI_ERR_COUNT;
  }
  at.davit.reduce_scatterv(send == bootstrap::in_place_buffer ? in_place : send, recv, counts, f32);
}

}  // namespace
}  // namespace davit::drop_in

using davit::drop_in::blocks_of;
using davit::drop_in::Inside;
using davit::drop_in::Kind;

int davit_alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[], MPI_Datatype sendtype,
                    void* recvbuf, int const recvcounts[], int const rdispls[], MPI_Datatype recvtype, MPI_Comm comm) {
  return davit::drop_in::exchange(Kind::alltoallv, blocks_of(sendbuf, sendcounts, sdispls, sendtype),
                                  blocks_of(recvbuf, recvcounts, rdispls, recvtype), comm, [&] {
                                    return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                                                          rdispls, recvtype, comm);
                                  });
}

int davit_alltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                   MPI_Datatype recvtype, MPI_Comm comm) {
  return davit::drop_in::exchange(
      Kind::alltoall, blocks_of(sendbuf, sendcount, sendtype), blocks_of(recvbuf, recvcount, recvtype), comm,
      [&] { return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

int davit_allgatherv(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int const recvcounts[],
                     int const displs[], MPI_Datatype recvtype, MPI_Comm comm) {
  using namespace davit::drop_in;
  auto const mpi = [&] {
    return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
  };
  int code = MPI_SUCCESS;
  auto* const at = taker_of(comm, Kind::allgatherv, code);
  if (code != MPI_SUCCESS) return report_error(comm, code);
  if (at == nullptr) {
    Inside const inside;
    return mpi();
  }
  auto const send = blocks_of(sendbuf, sendcount, sendtype);
  auto const recv = blocks_of(recvbuf, recvcounts, displs, recvtype);
  auto const refuse = [&] { at->davit.allgatherv(nullptr, 0, no_such_dtype, nullptr, {}, {}, no_such_dtype); };
  return run(
      *at, Kind::allgatherv, [&](Stage& stage) { allgatherv(*at, send, recv, stage); }, refuse,
      sendbuf != davit::bootstrap::in_place_buffer, mpi);
}

int davit_reduce_scatter(void const* sendbuf, void* recvbuf, int const recvcounts[], MPI_Datatype datatype, MPI_Op op,
                         MPI_Comm comm) {
  using namespace davit::drop_in;
  auto const mpi = [&] { return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm); };
  // Datatype and operation are equal on all ranks, as MPI asks, so all decide alike.
  bool const can = datatype == davit::bootstrap::float_type && op == davit::bootstrap::sum;
  int code = MPI_SUCCESS;
  auto* const at = can ? taker_of(comm, Kind::reduce_scatter, code) : nullptr;
  if (code != MPI_SUCCESS) return report_error(comm, code);
  if (at == nullptr) {
    Inside const inside;
    return mpi();
  }
  auto const refuse = [&] { at->davit.reduce_scatterv(nullptr, nullptr, {}, no_such_dtype); };
  return run(
      *at, Kind::reduce_scatter, [&](Stage& stage) { reduce_scatter(*at, sendbuf, recvbuf, recvcounts, stage); },
      refuse, sendbuf != davit::bootstrap::in_place_buffer, mpi);
}
