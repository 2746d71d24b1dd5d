// SPDX-License-Identifier: Apache-2.0
/// @file
/// The communicator of davit that hangs on an MPI communicator, and what is known of an MPI datatype.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

#include "davit/communicator.hpp"

namespace davit::drop_in {

/// While one lives on a thread, MPI calls are davit's own: the interposer lets them through.
class Inside {
 public:
  Inside() noexcept { ++depth(); }
  ~Inside() { --depth(); }
  Inside(Inside const&) = delete;
  Inside& operator=(Inside const&) = delete;
  [[nodiscard]] static bool any() noexcept { return depth() > 0; }

 private:
  static int& depth() noexcept {
    static thread_local int value = 0;
    return value;
  }
};

/// Hangs on an MPI_Comm as an attribute. `davit` is null where the MPI library does the calls; `own` is a communicator
/// over the same ranks that returns errors, for MPI_Pack.
struct Attached {
  Communicator davit;
  MPI_Comm own;
  int rank = 0;
  int size = 0;
};

/// What hangs on `comm`; made at the first call, which is collective. Null where MPI itself must say what is wrong.
[[nodiscard]] Attached* attached(MPI_Comm comm);

struct Type {
  std::int64_t size = 0;
  std::int64_t extent = 0;
  bool contiguous = false;  ///< the bytes of an element lie in the order in which they are sent, without a gap
};

/// @throws UsageError for no datatype.
[[nodiscard]] Type type_of(MPI_Datatype type, MPI_Comm own);

}  // namespace davit::drop_in
