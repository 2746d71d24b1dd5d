// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI's calls on requests, for those that are davit's. While there are none these go straight to the MPI library.
#include <numeric>
#include <vector>

#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/export.hpp"
#include "runtime/interposer/batch.hpp"
#include "runtime/interposer/next.hpp"
#include "transports/wait.hpp"

using davit::Backoff;
using davit::Eagerness;
using namespace davit::drop_in;

namespace {

/// Whether nothing here is davit's business. Else gets on with what nobody waits for.
bool is_idle() {
  if (Pendings::of_process().none() || Inside::any()) return true;
  Inside const inside;
  Pendings::of_process().sweep();
  return false;
}

std::vector<int> all_of(int count) {
  std::vector<int> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// MPI_Wait and MPI_Test are the plural forms for one.
int conclude_one(Batch& batch, int code) {
  int const mine = batch.take_code(0);
  return code != MPI_SUCCESS || mine == MPI_SUCCESS ? code : batch.report(0, mine);
}

/// Whether davit has finished all, or waits until it has.
bool finished(Batch& batch, bool waits) {
  Inside const inside;
  if (waits) {
    batch.wait();
    return true;
  }
  if (batch.finish()) return true;
  batch.poke_mpi();
  return false;
}

/// One round of MPI_Waitany or MPI_Testany. @returns whether there is an answer
template <class Testany>
bool try_any(Batch& batch, Testany* testany, int count, int* index, MPI_Status* status, int& code) {
  Inside const inside;
  bool const all_done = batch.finish();
  if (!all_done) batch.poke_mpi();
  int flag = 0;
  code = testany(count, batch.offer(), index, &flag, status);
  bool const has_one = flag != 0 && *index != MPI_UNDEFINED;
  batch.accept({index, has_one ? 1U : 0U});
  if (code != MPI_SUCCESS || has_one) return true;
  return flag != 0 && all_done;
}

/// One round of MPI_Waitsome or MPI_Testsome. @returns whether there is an answer for the one that waits
template <class Testsome>
bool try_some(Batch& batch, Testsome* testsome, int count, int* done, int indices[], MPI_Status* statuses, int& code) {
  Inside const inside;
  bool const all_done = batch.finish();
  if (!all_done) batch.poke_mpi();
  code = testsome(count, batch.offer(), done, indices, statuses);
  auto const found = *done == MPI_UNDEFINED ? 0U : static_cast<unsigned>(*done);
  batch.accept({indices, found});
  if (*done == MPI_UNDEFINED && !all_done) *done = 0;
  return code != MPI_SUCCESS || *done != 0;
}

int report_any(Batch& batch, int code, int index) {
  if (code != MPI_SUCCESS || index == MPI_UNDEFINED) return code;
  int const mine = batch.take_code(index);
  return mine == MPI_SUCCESS ? code : batch.report(index, mine);
}

int report_some(Batch& batch, int code, int done, int const* indices, MPI_Status* statuses) {
  if (done == MPI_UNDEFINED) return code;
  return batch.conclude(code, {indices, static_cast<std::size_t>(done)}, statuses);
}

}  // namespace

extern "C" {

DAVIT_EXPORT int PMPI_Wait(MPI_Request* request, MPI_Status* status) {
  static auto* const real = next<decltype(PMPI_Wait)>("PMPI_Wait");
  if (is_idle()) return real(request, status);
  Batch batch(1, request);
  if (batch.none()) return real(request, status);
  finished(batch, true);
  batch.forget();
  return conclude_one(batch, real(request, status));
}

DAVIT_EXPORT int PMPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  static auto* const real = next<decltype(PMPI_Test)>("PMPI_Test");
  if (is_idle()) return real(request, flag, status);
  Batch batch(1, request);
  if (batch.none()) return real(request, flag, status);
  *flag = 0;
  if (!finished(batch, false)) return MPI_SUCCESS;
  batch.forget();
  int const code = real(request, flag, status);
  if (*flag != 0) return conclude_one(batch, code);
  batch.remember();
  return code;
}

DAVIT_EXPORT int PMPI_Waitall(int count, MPI_Request requests[], MPI_Status* statuses) {
  static auto* const real = next<decltype(PMPI_Waitall)>("PMPI_Waitall");
  if (is_idle()) return real(count, requests, statuses);
  Batch batch(count, requests);
  if (batch.none()) return real(count, requests, statuses);
  finished(batch, true);
  batch.forget();
  int const code = real(count, requests, statuses);
  return batch.conclude(code, all_of(count), statuses);
}

DAVIT_EXPORT int PMPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status* statuses) {
  static auto* const real = next<decltype(PMPI_Testall)>("PMPI_Testall");
  if (is_idle()) return real(count, requests, flag, statuses);
  Batch batch(count, requests);
  if (batch.none()) return real(count, requests, flag, statuses);
  *flag = 0;
  if (!finished(batch, false)) return MPI_SUCCESS;
  batch.forget();
  int const code = real(count, requests, flag, statuses);
  if (*flag != 0) return batch.conclude(code, all_of(count), statuses);
  batch.remember();
  return code;
}

DAVIT_EXPORT int PMPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  static auto* const real = next<decltype(PMPI_Waitany)>("PMPI_Waitany");
  static auto* const testany = next<decltype(PMPI_Testany)>("PMPI_Testany");
  if (is_idle()) return real(count, requests, index, status);
  Batch batch(count, requests);
  if (batch.none()) return real(count, requests, index, status);
  int code = MPI_SUCCESS;
  Backoff backoff(Eagerness::yield);
  while (!try_any(batch, testany, count, index, status, code)) backoff.idle();
  return report_any(batch, code, *index);
}

DAVIT_EXPORT int PMPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  static auto* const real = next<decltype(PMPI_Testany)>("PMPI_Testany");
  if (is_idle()) return real(count, requests, index, flag, status);
  Batch batch(count, requests);
  if (batch.none()) return real(count, requests, index, flag, status);
  int code = MPI_SUCCESS;
  *flag = try_any(batch, real, count, index, status, code) ? 1 : 0;
  if (*flag == 0) *index = MPI_UNDEFINED;
  return report_any(batch, code, *index);
}

DAVIT_EXPORT int PMPI_Waitsome(int count, MPI_Request requests[], int* done, int indices[], MPI_Status* statuses) {
  static auto* const real = next<decltype(PMPI_Waitsome)>("PMPI_Waitsome");
  static auto* const testsome = next<decltype(PMPI_Testsome)>("PMPI_Testsome");
  if (is_idle()) return real(count, requests, done, indices, statuses);
  Batch batch(count, requests);
  if (batch.none()) return real(count, requests, done, indices, statuses);
  int code = MPI_SUCCESS;
  Backoff backoff(Eagerness::yield);
  while (!try_some(batch, testsome, count, done, indices, statuses, code)) backoff.idle();
  return report_some(batch, code, *done, indices, statuses);
}

DAVIT_EXPORT int PMPI_Testsome(int count, MPI_Request requests[], int* done, int indices[], MPI_Status* statuses) {
  static auto* const real = next<decltype(PMPI_Testsome)>("PMPI_Testsome");
  if (is_idle()) return real(count, requests, done, indices, statuses);
  Batch batch(count, requests);
  if (batch.none()) return real(count, requests, done, indices, statuses);
  int code = MPI_SUCCESS;
  try_some(batch, real, count, done, indices, statuses, code);
  return report_some(batch, code, *done, indices, statuses);
}

DAVIT_EXPORT int PMPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  static auto* const real = next<decltype(PMPI_Request_get_status)>("PMPI_Request_get_status");
  if (is_idle()) return real(request, flag, status);
  Batch batch(1, &request);
  *flag = 0;
  if (!batch.none() && !finished(batch, false)) return MPI_SUCCESS;
  return real(request, flag, status);
}

DAVIT_EXPORT int PMPI_Request_free(MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Request_free)>("PMPI_Request_free");
  if (is_idle()) return real(request);
  auto& all = Pendings::of_process();
  auto pending = all.find(*request);
  if (pending != nullptr && (pending->active() || !pending->persistent())) {
    all.detach(std::move(pending));
    *request = davit::bootstrap::no_request;
    return MPI_SUCCESS;
  }
  if (pending != nullptr) all.remove(*pending);
  Inside const inside;
  pending.reset();
  return real(request);
}

DAVIT_EXPORT int PMPI_Start(MPI_Request* request) {
  static auto* const real = next<decltype(PMPI_Start)>("PMPI_Start");
  if (is_idle()) return real(request);
  auto const pending = Pendings::of_process().find(*request);
  if (pending == nullptr || !pending->persistent()) return real(request);
  int code = MPI_SUCCESS;
  {
    Inside const inside;
    code = pending->start();
  }
  return code == MPI_SUCCESS ? code : pending->report(code);
}

DAVIT_EXPORT int PMPI_Startall(int count, MPI_Request requests[]) {
  static auto* const real = next<decltype(PMPI_Startall)>("PMPI_Startall");
  if (is_idle() || Batch(count, requests).none()) return real(count, requests);
  for (int i = 0; i < count; ++i) {
    int const code = PMPI_Start(requests + i);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}
}

DAVIT_ALSO_AS(MPI_Wait, PMPI_Wait);
DAVIT_ALSO_AS(MPI_Test, PMPI_Test);
DAVIT_ALSO_AS(MPI_Waitall, PMPI_Waitall);
DAVIT_ALSO_AS(MPI_Testall, PMPI_Testall);
DAVIT_ALSO_AS(MPI_Waitany, PMPI_Waitany);
DAVIT_ALSO_AS(MPI_Testany, PMPI_Testany);
DAVIT_ALSO_AS(MPI_Waitsome, PMPI_Waitsome);
DAVIT_ALSO_AS(MPI_Testsome, PMPI_Testsome);
DAVIT_ALSO_AS(MPI_Request_get_status, PMPI_Request_get_status);
DAVIT_ALSO_AS(MPI_Request_free, PMPI_Request_free);
DAVIT_ALSO_AS(MPI_Start, PMPI_Start);
DAVIT_ALSO_AS(MPI_Startall, PMPI_Startall);
