// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bridge from MPI: the only public C++ header that includes mpi.h.
#pragma once

#include <mpi.h>

#include <memory>

#include "davit/bootstrap.hpp"

namespace davit {

/// Collective over `comm`: a bootstrap on a duplicate of `comm`, so davit's messages never meet the program's. MPI
/// errors on the duplicate become SystemError. It must end before MPI_Finalize; one that outlives it is left to MPI.
/// @param comm an intra-communicator; MPI must be initialised.
/// @throws UsageError if MPI is not initialised, is finalised, or `comm` is null or an inter-communicator;
///         TimeoutError if not all ranks come within DAVIT_TIMEOUT; SystemError if MPI fails.
[[nodiscard]] DAVIT_EXPORT std::shared_ptr<Bootstrap> mpi(MPI_Comm comm);

}  // namespace davit
