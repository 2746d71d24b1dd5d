// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a communicator has moved, counted at this rank. The north star is the count of crossings: a row goes up once,
/// however many ranks of the node need it, and comes down once for each rank that needs it.
#pragma once

#include <cstdint>

namespace davit {

/// Totals since creation. *Up* is from this rank's buffers into its slots, *down* from peers' slots into its buffers.
/// A row is a token row of dispatch, a partial row of combine. Rows that stay on the rank cross nothing.
struct Stats {
  std::uint64_t calls = 0;         ///< collectives that this rank took part in, refused ones included
  std::uint64_t rows_up = 0;       ///< token or partial rows pushed into own slots
  std::uint64_t rows_down = 0;     ///< token or partial rows taken from peers' slots
  std::uint64_t rows_slack = 0;    ///< rows taken although not needed
  std::uint64_t bytes_up = 0;      ///< payload bytes pushed into own slots, rows included
  std::uint64_t bytes_down = 0;    ///< payload bytes taken from peers' slots, rows included
  std::uint64_t bytes_direct = 0;  ///< payload bytes taken straight from peers' buffers
  std::uint64_t bytes_kept = 0;    ///< payload bytes of the blocks this rank kept
  std::uint64_t bytes_ids = 0;     ///< ids and weights published by `route`
  std::uint64_t bytes_cards = 0;   ///< call cards written
  std::uint64_t chunks_up = 0;     ///< slots filled
  std::uint64_t bytes_wire = 0;    ///< payload bytes sent to other nodes, once a node
  /// Bytes sent to other nodes beside that: cards, ids and weights, counters, where payload belongs.
  std::uint64_t bytes_wire_headers = 0;
  std::uint64_t messages_wire = 0;  ///< sent to other nodes
};

}  // namespace davit
