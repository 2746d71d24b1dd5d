// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/taken.hpp"

#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/error.hpp"
#include "runtime/interposer/sides.hpp"
#include "runtime/log.hpp"

namespace davit::drop_in {
namespace {

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Both from a common start, so that neither waits for a rank that came late. @returns the call's
int compared(Attached& at, Kind kind, std::function<int()> const& call, std::function<int()> const& again) {
  MPI_Barrier(at.own);
  auto start = Clock::now();
  int const code = call();
  auto const by_davit = since(start);
  int const good = code == MPI_SUCCESS ? 1 : 0;
  int all = 0;
  if (MPI_Allreduce(&good, &all, 1, bootstrap::int_type, MPI_MIN, at.own) != MPI_SUCCESS || all == 0) return code;
  start = Clock::now();
  if (again() != MPI_SUCCESS) return code;
  auto const by_mpi = since(start);
  at.tally.change(kind, [&](Calls& calls) {
    calls.sampled_mpi += by_mpi;
    calls.sampled_davit += by_davit;
    ++calls.sampled;
  });
  return code;
}

}  // namespace

int report_error(MPI_Comm comm, int code) {
  MPI_Comm_call_errhandler(comm == bootstrap::no_comm ? bootstrap::world : comm, code);
  return code;
}

int class_of_current(int otherwise) noexcept {
  try {
    throw;
  } catch (MismatchError const& error) {
    detail::log(LogLevel::error, error.what());
    return MPI_ERR_TRUNCATE;
  } catch (BadBuffer const& error) {
    detail::log(LogLevel::error, error.what());
    return MPI_ERR_BUFFER;
  } catch (UsageError const& error) {
    detail::log(LogLevel::error, error.what());
    return otherwise;
  } catch (std::exception const& error) {
    detail::log(LogLevel::error, error.what());
    return MPI_ERR_OTHER;
  }
}

Attached* taker_of(MPI_Comm comm, Kind kind, int& code) {
  try {
    auto* const at = attached(comm);
    if (at != nullptr && at->davit) return at;
    if (at != nullptr && switches().verbose) {
      at->tally.change(kind, [](Calls& calls) { ++calls.passed_on; });
    }
  } catch (...) {
    code = class_of_current(MPI_ERR_OTHER);
  }
  return nullptr;
}

int measured(Attached& at, Kind kind, Stage const& stage, std::function<int()> const& call,
             std::function<int()> const& again) {
  auto const sample = switches().sample;
  bool compares = false;
  at.tally.change(kind, [&](Calls& calls) {
    ++calls.taken;
    compares = again && sample > 0 && calls.taken % sample == 0;
  });
  auto const start = Clock::now();
  int const code = compares ? compared(at, kind, call, again) : call();
  auto const seconds = compares ? 0 : since(start);
  at.tally.change(kind, [&](Calls& calls) {
    calls.seconds += seconds;
    calls.bytes += static_cast<std::uint64_t>(stage.bytes);
  });
  return code;
}

}  // namespace davit::drop_in
