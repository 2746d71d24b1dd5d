// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layer, spread over the ranks: once by davit, once by MPI_Alltoallv.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "davit/communicator.hpp"
#include "examples/moe_layer/device.hpp"
#include "examples/moe_layer/experts.hpp"
#include "examples/moe_layer/model.hpp"
#include "examples/moe_layer/stopwatch.hpp"
#include "examples/support/world.hpp"

namespace moe {

/// Collective: one batch through the layer, its rows `x` [T, H] into `out` [T, H], both on the device.
using Layer = std::function<void(Batch const& batch, std::byte const* x, std::byte* out, Stopwatch& watch)>;

struct DavitLayer {
  Layer run;
  int reduce_group;  ///< ranks whose partial sums davit adds first
};

/// Collective. What they are given must outlive the layers.
/// @param stream what davit's calls are enqueued on; nothing: they block.
[[nodiscard]] DavitLayer make_davit_layer(davit::Communicator& comm, Options const& options, Experts& experts,
                                          std::optional<davit::Stream> stream);
/// @param device that carries the rows.
[[nodiscard]] Layer make_mpi_layer(support::World const& world, Options const& options, Experts& experts,
                                   Device& device);

}  // namespace moe
