// SPDX-License-Identifier: Apache-2.0
/// @file
/// The frame of a program that runs under mpirun.
#pragma once

#include <functional>

#include "examples/support/world.hpp"

namespace support {

/// Runs `body` on every rank between MPI_Init and MPI_Finalize. What it throws is told on stderr and becomes the exit
/// code, which is the worst of all ranks' codes; no rank is left waiting for one that failed. All ranks must have the
/// same arguments.
[[nodiscard]] int run_program(char const* name, int argc, char** argv, std::function<Exit(World const&)> const& body);

}  // namespace support
