// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether two sides did the same, and the right thing.
#pragma once

#include <string>

#include "examples/davit_perf/moe.hpp"
#include "examples/davit_perf/operations.hpp"

namespace perf {

/// How a peer's combined rows compare with davit's.
enum class Sums : std::uint8_t {
  same_steps,      ///< the same roundings: equal bits, unless davit adds by groups of ranks (several nodes)
  other_steps,     ///< within the reference's tolerance only
  rounded_by_rank  ///< the same, but sums of ranks are rounded one after the other
};

/// Collective: routes, dispatches and combines on both sides. Received rows must be equal bit by bit, in the order
/// by_expert. The experts then scale their rows by 1, 2 or 4, so that rows of different experts differ. Combined rows
/// must lie within 3u * S of the sum in f64 that the tokens' owner makes from x alone (S: sum of the terms' sizes, u:
/// unit round-off of the dtype): rounded once an owner of experts, once a group, once at the end; where ranks' sums are
/// rounded one after the other, once more a rank.
[[nodiscard]] bool check_moe(Bench const& bench, MoeProblem& problem, MoeSide& davit, MoeSide& peer, Sums sums);

}  // namespace perf
