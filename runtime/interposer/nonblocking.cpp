// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "davit/export.hpp"
#include "runtime/interposer/posting.hpp"

namespace davit::drop_in {
namespace {

/// Communicators on which a nonblocking call came before any blocking one.
std::atomic<int> wanted{0};

int hand_out(Attached const& at, std::shared_ptr<Pending> pending, int code, MPI_Request* request) {
  if (code != MPI_SUCCESS) return report_error(at.comm, code);
  *request = pending->handle();
  Pendings::of_process().add(std::move(pending));
  return MPI_SUCCESS;
}

}  // namespace

Attached* poster_of(MPI_Comm comm, Kind kind) noexcept {
  try {
    auto* const at = attached_so_far(comm);
    if (at != nullptr && at->davit) return at;
    if (at != nullptr && !at->tried && !at->wanted) {
      at->wanted = true;
      ++wanted;
    }
    if (at != nullptr && switches().verbose) {
      at->tally.change(kind, [&](Calls& calls) {
        ++calls.passed_on;
        if (!at->tried) ++calls.early;
      });
    }
  } catch (...) {  // then MPI says what is wrong
    static_cast<void>(class_of_current(MPI_ERR_OTHER));
  }
  return nullptr;
}

int post(Attached& at, Kind kind, Given const& send, Given const& recv, MPI_Request* request) {
  int code = MPI_SUCCESS;
  std::shared_ptr<Pending> pending;
  {
    Inside const inside;
    pending = Pending::post(at, kind, send, recv, code);
  }
  return hand_out(at, std::move(pending), code, request);
}

int prepare(Attached& at, Kind kind, Given const& send, Given const& recv, MPI_Request* request) {
  int code = MPI_SUCCESS;
  std::shared_ptr<Pending> pending;
  {
    Inside const inside;
    pending = Pending::prepare(at, kind, send, recv, code);
  }
  return hand_out(at, std::move(pending), code, request);
}

}  // namespace davit::drop_in

using namespace davit::drop_in;

extern "C" {

DAVIT_EXPORT int PMPI_Ialltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[],
                                 MPI_Datatype sendtype, void* recvbuf, int const recvcounts[], int const rdispls[],
                                 MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Ialltoallv)>("PMPI_Ialltoallv");
  return post_or_pass(Kind::ialltoallv, blocks_of(sendbuf, sendcounts, sdispls, sendtype),
                      blocks_of(recvbuf, recvcounts, rdispls, recvtype), comm, request, [&] {
                        return real(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                                    comm, request);
                      });
}

DAVIT_EXPORT int PMPI_Ialltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                                MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Ialltoall)>("PMPI_Ialltoall");
  return post_or_pass(Kind::ialltoall, blocks_of(sendbuf, sendcount, sendtype), blocks_of(recvbuf, recvcount, recvtype),
                      comm, request,
                      [&] { return real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request); });
}

/// For programs that only make nonblocking calls: a barrier is a blocking call too, and all ranks made the same calls
/// before it.
DAVIT_EXPORT int PMPI_Barrier(MPI_Comm comm) {
  static auto* const real = next<decltype(PMPI_Barrier)>("PMPI_Barrier");
  if (wanted.load(std::memory_order_relaxed) == 0 || Inside::any()) return real(comm);
  auto* const at = attached_so_far(comm);
  if (at == nullptr || !at->wanted) return real(comm);
  at->wanted = false;
  --wanted;
  int code = MPI_SUCCESS;
  try {
    static_cast<void>(attached(comm));
  } catch (...) {
    code = class_of_current(MPI_ERR_OTHER);
  }
  return code == MPI_SUCCESS ? real(comm) : report_error(comm, code);
}
}

DAVIT_ALSO_AS(MPI_Ialltoallv, PMPI_Ialltoallv);
DAVIT_ALSO_AS(MPI_Ialltoall, PMPI_Ialltoall);
DAVIT_ALSO_AS(MPI_Barrier, PMPI_Barrier);
