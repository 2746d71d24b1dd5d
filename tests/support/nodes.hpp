// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks that are threads of one process on pretended nodes: what goes between nodes takes the wire, over messages
/// between threads, so that sanitizers see it.
#pragma once

#include <memory>
#include <vector>

#include "davit/bootstrap.hpp"
#include "runtime/factory.hpp"

namespace davit::test {

/// Ranks sit on DAVIT_TEST_NODES nodes (1 where it is not set), in blocks as equal as can be. With
/// DAVIT_TEST_WIRE=caller only the thread that made a link may use it, as with MPI below MPI_THREAD_MULTIPLE.
[[nodiscard]] int pretended_nodes();
[[nodiscard]] bool wire_is_for_one_thread();
/// What an expert group's `reduce_group` is where it is left to davit: a node's ranks, or 1 where nodes are unequal.
[[nodiscard]] int default_reduce_group(int ranks);
/// A rank's bootstrap, with those nodes.
[[nodiscard]] std::shared_ptr<Bootstrap> on_nodes(std::shared_ptr<Bootstrap> bootstrap);
/// A LinkMaker of messages between threads.
[[nodiscard]] std::unique_ptr<Link> link_of_threads(Bootstrap& bootstrap, Deadline deadline);

}  // namespace davit::test
