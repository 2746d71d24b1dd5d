// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layer, spread over the ranks: once by davit, once by MPI_Alltoallv.
#pragma once

#include <cstddef>
#include <functional>

#include "davit/communicator.hpp"
#include "examples/moe_layer/experts.hpp"
#include "examples/moe_layer/model.hpp"
#include "examples/moe_layer/stopwatch.hpp"
#include "examples/support/world.hpp"

namespace moe {

/// Collective: one batch through the layer; `out` [T, H] of the rows' dtype.
using Layer = std::function<void(Batch const& batch, std::byte* out, Stopwatch& watch)>;

/// Collective. What they are given must outlive the layers.
[[nodiscard]] Layer make_davit_layer(davit::Communicator& comm, Options const& options, LocalExperts const& experts);
[[nodiscard]] Layer make_mpi_layer(support::World const& world, Options const& options, LocalExperts const& experts);

}  // namespace moe
