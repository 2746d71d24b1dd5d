// SPDX-License-Identifier: Apache-2.0
/// @file
/// What travels in a frame: records, one after the other. A record puts bytes into a segment, then raises counters of
/// it. Both ends run the same program on the same kind of processor, so numbers travel as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace davit {

struct WireRange {
  std::uint64_t offset;  ///< in the segment
  std::uint64_t bytes;
};

/// A counter, by its place in the segment, and what it comes to.
struct WireSignal {
  std::uint64_t offset;
  std::uint32_t value;
  std::uint32_t unused = 0;
};

/// Records of a lane take effect in order; `back` are counters for the segment of the rank that they go to.
enum class WireLane : std::uint8_t { now, later, back };

struct WireRecord {
  WireLane lane;
  bool apart;  ///< the bytes come in a message of their own
  int segment;
  std::vector<WireRange> ranges;
  std::vector<WireSignal> signals;
  std::span<std::byte const> bytes;  ///< unless they come apart
};

/// Most ranges and signals of one record, so that every record fits a frame.
inline constexpr std::size_t kWireRanges = 512;
inline constexpr std::size_t kWireSignals = 512;
/// Most bytes that travel inside of a frame.
inline constexpr std::size_t kWireInline = std::size_t{24} << 10;

/// Bytes that a record takes in a frame.
[[nodiscard]] std::size_t wire_record_bytes(std::size_t ranges, std::size_t signals, std::size_t bytes) noexcept;
/// Appends a record; of its bytes only if `source`, the segment, is not null.
void append_wire_record(std::vector<std::byte>& frame, WireLane lane, int segment, std::span<WireRange const> ranges,
                        std::span<WireSignal const> signals, std::byte const* source);
/// Takes the first record off `frame`. @returns none where there is none, or where it is not one.
[[nodiscard]] std::optional<WireRecord> take_wire_record(std::span<std::byte const>& frame);

}  // namespace davit
