// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is found out about words at start-up: which units arrive whole, and at which pace to send.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transports/cuda/words.hpp"

namespace davit::cuda {

/// What a rank has seen of units that another GPU was rewriting.
struct UnitCounts {
  unsigned long long changed;  ///< lines of 64 bytes that were new
  unsigned long long torn64;   ///< among them: not all of one write
  unsigned long long torn16;   ///< lines with a unit of 16 bytes that was torn
  unsigned long long torn8;
};

/// Bytes of the memory that a unit probe rewrites.
inline constexpr std::size_t kUnitProbeBytes = 16 * std::size_t{2048};

/// The start-up test: rewrites `own` again and again and looks at `theirs`, which the rank it belongs to rewrites at
/// the same time. Every rank of the node calls it, after a barrier; ends by itself after `time`, also where no other
/// comes. Both memories are left with any contents.
/// @param counts device or pinned memory; added to.
void launch_unit_probe(cudaStream_t stream, std::byte* own, std::byte const* theirs, std::chrono::microseconds time,
                       UnitCounts* counts);

/// Sums of all ranks' counts: whether lines are whole.
enum class WordsUnits : std::uint32_t { none, units8, units16, lines64 };
/// Without enough changed lines, as on a GPU that ranks share in time slices, nothing is believed that is not promised.
[[nodiscard]] WordsUnits believed_units(UnitCounts const& counts) noexcept;

struct WordsPace {
  double rate;         ///< for WordsPlan::rate, 0 where no pace is better than none
  double paced_gbs;    ///< bytes of the message a nanosecond and direction at that rate
  double unpaced_gbs;  ///< without
};

/// Exchanges with itself through a region at several rates, for a few milliseconds, and says which was best. Blocks.
/// @param channel a prepared region and credits of its own, of at least 256 KiB a bank; its number is moved on.
/// @throws TimeoutError where the device does not get done within ten seconds, SystemError.
[[nodiscard]] WordsPace measure_words_pace(WordsDevice const& device, WordsChannel& channel, unsigned warps,
                                           WordsPlan plan);

}  // namespace davit::cuda
