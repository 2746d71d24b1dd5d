// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "examples/moe_layer/layer.hpp"
#include "examples/support/moe_recipe.hpp"

namespace moe {

Layer make_mpi_layer(support::World const& world, Options const& options, Experts& experts, Device& device) {
  support::LayerShape const shape{
      .experts = options.experts, .top_k = options.top_k, .hidden = options.hidden, .dtype = options.dtype};
  auto const exchange = std::make_shared<support::MoeRecipe>(shape, world.comm(), device.make_carrier(shape));

  return [=, &experts](Batch const& batch, std::byte const* x, std::byte* out, Stopwatch& watch) {
    exchange->route(batch.ids, batch.weights);
    watch.done(Phase::route);
    exchange->dispatch(x);
    watch.done(Phase::dispatch);
    experts.run(exchange->received(), exchange->expert_counts());
    watch.done(Phase::experts);
    exchange->combine(out);
    watch.done(Phase::combine);
  };
}

}  // namespace moe
