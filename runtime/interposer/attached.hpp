// SPDX-License-Identifier: Apache-2.0
/// @file
/// The communicator of davit that hangs on an MPI communicator, and what is known of an MPI datatype.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "davit/communicator.hpp"
#include "runtime/interposer/report.hpp"

namespace davit::drop_in {

/// While one lives on a thread, MPI calls are davit's own: the interposer lets them through.
class Inside {
 public:
  Inside() noexcept { ++depth; }
  ~Inside() { --depth; }
  Inside(Inside const&) = delete;
  Inside& operator=(Inside const&) = delete;
  [[nodiscard]] static bool any() noexcept { return depth > 0; }

 private:
  static constinit thread_local int depth;
};

/// Hangs on an MPI_Comm as an attribute. `davit` is null where the MPI library does the calls; `own` is a communicator
/// over the same ranks that returns errors, for MPI_Pack and for davit's own meetings.
struct Attached : std::enable_shared_from_this<Attached> {
  explicit Attached(MPI_Comm comm_in);
  /// davit's communicator, but not `own`: that is freed where all ranks do.
  ~Attached();
  Attached(Attached const&) = delete;
  Attached& operator=(Attached const&) = delete;

  Communicator davit;
  MPI_Comm comm;  ///< the program's; null once that is freed
  MPI_Comm own;
  int rank = 0;
  int size = 0;
  bool is_inter = false;
  bool tried = false;          ///< whether `davit` is what it will be
  bool wanted = false;         ///< by a nonblocking call that came before it could be made
  std::exception_ptr failure;  ///< of making it: the ranks no longer stand at the same place
  std::string reason;          ///< why MPI does the calls
  int neighbors = -1;          ///< whether davit takes exchanges of neighbours; -1: the ranks have not agreed yet
  Tally tally;
};

/// What hangs on `comm`; with davit's communicator, which the first call makes: it is collective. Null where MPI itself
/// must say what is wrong. @throws TimeoutError, SystemError
[[nodiscard]] Attached* attached(MPI_Comm comm);
/// The same, but local: davit's communicator may not be there yet.
[[nodiscard]] Attached* attached_so_far(MPI_Comm comm);

/// Called before all communicators of davit are closed, in MPI_Finalize.
void at_finalize(void (*function)()) noexcept;

struct Type {
  std::int64_t size = 0;
  std::int64_t extent = 0;
  bool contiguous = false;  ///< the bytes of an element lie in the order in which they are sent, without a gap
};

/// @throws UsageError for no datatype.
[[nodiscard]] Type type_of(MPI_Datatype type, MPI_Comm own);

}  // namespace davit::drop_in
