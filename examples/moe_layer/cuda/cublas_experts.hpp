// SPDX-License-Identifier: Apache-2.0
/// @file
/// The experts of a rank, on its GPU.
#pragma once

#include <memory>

#include "examples/moe_layer/experts.hpp"
#include "examples/support/cuda/stream.hpp"

namespace moe {

/// Enqueued on `stream`. Rows of by_expert and expert_slots; by_source is refused by the options.
[[nodiscard]] std::unique_ptr<Experts> make_cublas_experts(Options const& options, std::int64_t first,
                                                           std::int64_t count, support::TimedStream const& stream);

}  // namespace moe
