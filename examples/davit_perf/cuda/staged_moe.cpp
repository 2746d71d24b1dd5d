// SPDX-License-Identifier: Apache-2.0
// staged-mpi: the recipe done well, its packed rows staged in pinned memory.
#include "examples/davit_perf/cuda/peers.hpp"
#include "examples/support/cuda/rows.hpp"

namespace perf {

std::unique_ptr<MoeSide> make_staged_moe(MoeProblem const& problem, Gpu& gpu) {
  constexpr bool blocks = true;
  auto carrier = support::make_staged_carrier(layer_of(problem), gpu.world.comm(), gpu.stream);
  return make_recipe_moe(problem, gpu.world, std::move(carrier), blocks);
}

}  // namespace perf
