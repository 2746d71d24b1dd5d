// SPDX-License-Identifier: Apache-2.0
/// @file
/// The job's outcome in words, on stdout. Called by rank 0 alone.
#pragma once

#include "examples/moe_layer/job.hpp"

namespace moe {

/// What the job is about, before it runs.
void print_head(Options const& options, int ranks);
/// What came of it; the last line begins with PASS or FAIL.
void print_outcome(Options const& options, int ranks, Outcome const& outcome);

}  // namespace moe
