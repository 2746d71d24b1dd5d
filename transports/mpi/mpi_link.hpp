// SPDX-License-Identifier: Apache-2.0
/// @file
/// The link over MPI: point-to-point messages on a communicator of its own.
#pragma once

#include <mpi.h>

#include <memory>

#include "transports/link.hpp"

namespace davit {

/// Takes over `comm`, an intra-communicator that nobody else uses. Local. @throws SystemError.
[[nodiscard]] std::unique_ptr<Link> make_mpi_link(MPI_Comm comm);

}  // namespace davit
