// SPDX-License-Identifier: Apache-2.0
/// @file
/// For the functions that libdavit_mpi.so puts before MPI's: the MPI library's own, and when to call them at once.
#pragma once

#include <dlfcn.h>

#include "runtime/interposer/attached.hpp"
#include "runtime/interposer/switches.hpp"

namespace davit::drop_in {

/// The function of this name behind ours.
template <class Function>
Function* next(char const* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Whether a call goes on: one that is not taken, or one that davit makes itself.
[[nodiscard]] inline bool passes(Kind kind) { return Inside::any() || !switches().take(kind); }

}  // namespace davit::drop_in

/// Gives a function that is defined here as PMPI_x the name MPI_x as well: wrappers of some MPI libraries, Fortran's
/// above all, call the one, programs the other.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define DAVIT_ALSO_AS(name, profiled) extern "C" DAVIT_EXPORT decltype(profiled) name __attribute__((alias(#profiled)))
