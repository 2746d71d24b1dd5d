// SPDX-License-Identifier: Apache-2.0
// All that davit does in this program. It needs davit/expert_group.hpp and a davit::Communicator, nothing else.
#include <memory>

#include "davit/expert_group.hpp"
#include "examples/moe_layer/layer.hpp"

namespace moe {

DavitLayer make_davit_layer(davit::Communicator& comm, Options const& options, Experts& experts,
                            std::optional<davit::Stream> stream) {
  // Once: what all batches have in common. Equal on all ranks.
  davit::ExpertGroupOptions const shape{
      .experts = options.experts,
      .top_k = options.top_k,
      .hidden = options.hidden,
      .max_tokens = options.tokens,  // most of a rank in one batch
      .dtype = options.dtype,
      .partial_dtype = options.partial_dtype,
      .reduce_group = options.reduce_group,
  };
  auto const group = std::make_shared<davit::ExpertGroup>(comm, shape);

  auto const run = [=, &options, &experts](Batch const& batch, std::byte const* x, std::byte* out, Stopwatch& watch) {
    // Each rank says which experts its tokens go to. Ranks may bring different numbers of tokens, or none.
    davit::Routing routing = group->route(batch.ids, batch.weights);
    watch.done(Phase::route);

    // Each row goes to the ranks of its experts, once a rank, and is laid out there as asked. On a GPU this is enqueued
    // on the stream that the experts work on, too; on the host there is none, and it blocks.
    davit::Received received =
        group->dispatch(routing, x, {.layout = options.layout, .alignment = options.alignment, .stream = stream});
    watch.done(Phase::dispatch);

    // The program's own work: results take the place of the rows they were made from.
    experts.run(received);
    watch.done(Phase::experts);

    // Results go back to the tokens' owners, weighted and added; on the way each rank sums what its experts made.
    group->combine(routing, received.data(), out, {.reduce = options.reduce, .stream = stream});
    watch.done(Phase::combine);
  };
  return {run, group->options().reduce_group};
}

}  // namespace moe
