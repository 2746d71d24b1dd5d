// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a taken call runs: who does it, what becomes of its errors, what is counted.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>

#include "davit/dtype.hpp"
#include "runtime/interposer/attached.hpp"
#include "runtime/interposer/report.hpp"

namespace davit::drop_in {

inline constexpr auto no_such_dtype = static_cast<Dtype>(0xFF);  // davit refuses it: so the other ranks learn of it

/// Calls the program's handler, which is no business of davit. @returns `code`
int report_error(MPI_Comm comm, int code);

/// Logs the error that is being handled. @returns its MPI error class. @param otherwise that of all but mismatches
[[nodiscard]] int class_of_current(int otherwise) noexcept;

/// What davit does a blocking call with, or null where MPI does it; makes davit's communicator if need be.
/// @param code set where it could not be made, and all is over
[[nodiscard]] Attached* taker_of(MPI_Comm comm, Kind kind, int& code);

/// How far a call has come, for its errors.
struct Stage {
  int blame = MPI_ERR_TYPE;  ///< class of what is thrown now
  bool told = false;         ///< whether davit was called, so that the other ranks learn of an error
  std::int64_t bytes = 0;
};

/// Runs `work`, which is given a Stage. @param refuse calls davit with what it refuses, so that the other ranks do not
/// wait for this one. @returns an MPI error class
template <class Work, class Refuse>
int guarded(Work const& work, Refuse const& refuse, Stage& stage) {
  try {
    work(stage);
    return MPI_SUCCESS;
  } catch (...) {
    int const code = class_of_current(stage.blame);
    if (stage.told) return code;
    try {
      refuse();
    } catch (std::exception const&) {  // the caller has a better one
    }
    return code;
  }
}

/// Counts and times a call. @param again the same by the MPI library, to compare; empty where it would change the data
int measured(Attached& at, Kind kind, Stage const& stage, std::function<int()> const& call,
             std::function<int()> const& again);

/// A blocking call. @returns an MPI error class, which the program's handler was told.
template <class Work, class Refuse, class Again>
int run(Attached& at, Kind kind, Work const& work, Refuse const& refuse, bool repeatable, Again const& again) {
  int code = MPI_SUCCESS;
  {
    Inside const inside;
    Stage stage;
    auto const call = [&] { return guarded(work, refuse, stage); };
    if (!switches().verbose) {
      code = call();
    } else {
      code = measured(at, kind, stage, call, repeatable ? std::function<int()>(again) : nullptr);
    }
  }
  return code == MPI_SUCCESS ? code : report_error(at.comm, code);
}

}  // namespace davit::drop_in
