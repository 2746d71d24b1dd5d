// SPDX-License-Identifier: Apache-2.0
#include "transports/wire_record.hpp"

#include <cstring>

namespace davit {
namespace {

constexpr std::uint16_t kMark = 0xda71;

struct Head {
  std::uint16_t mark;
  WireLane lane;
  std::uint8_t apart;
  std::uint32_t segment;
  std::uint16_t ranges;
  std::uint16_t signals;
  std::uint32_t bytes;
};
static_assert(sizeof(Head) == 16 && sizeof(WireRange) == 16 && sizeof(WireSignal) == 16);

std::size_t padded(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

template <class T>
void append(std::vector<std::byte>& frame, T const* from, std::size_t count) {
  auto const* const bytes = reinterpret_cast<std::byte const*>(from);
  frame.insert(frame.end(), bytes, bytes + count * sizeof(T));
}

template <class T>
void take(std::span<std::byte const>& frame, T* to, std::size_t count) noexcept {
  if (count > 0) std::memcpy(to, frame.data(), count * sizeof(T));
  frame = frame.subspan(count * sizeof(T));
}

}  // namespace

std::size_t wire_record_bytes(std::size_t ranges, std::size_t signals, std::size_t bytes) noexcept {
  return sizeof(Head) + ranges * sizeof(WireRange) + signals * sizeof(WireSignal) + padded(bytes);
}

void append_wire_record(std::vector<std::byte>& frame, WireLane lane, int segment, std::span<WireRange const> ranges,
                        std::span<WireSignal const> signals, std::byte const* source) {
  std::size_t bytes = 0;
  for (auto const& range : ranges) bytes += range.bytes;
  Head const head{kMark,
                  lane,
                  static_cast<std::uint8_t>(source == nullptr && bytes > 0),
                  static_cast<std::uint32_t>(segment),
                  static_cast<std::uint16_t>(ranges.size()),
                  static_cast<std::uint16_t>(signals.size()),
                  source == nullptr ? 0 : static_cast<std::uint32_t>(bytes)};
  append(frame, &head, 1);
  append(frame, ranges.data(), ranges.size());
  append(frame, signals.data(), signals.size());
  if (source == nullptr) return;
  for (auto const& range : ranges) append(frame, source + range.offset, range.bytes);
  frame.resize(frame.size() + padded(bytes) - bytes);
}

std::optional<WireRecord> take_wire_record(std::span<std::byte const>& frame) {
  Head head{};
  if (frame.size() < sizeof head) return std::nullopt;
  take(frame, &head, 1);
  auto const rest = wire_record_bytes(head.ranges, head.signals, head.bytes) - sizeof head;
  if (head.mark != kMark || head.lane > WireLane::back || frame.size() < rest) return std::nullopt;
  WireRecord record{head.lane, head.apart != 0, static_cast<int>(head.segment), {}, {}, {}};
  record.ranges.resize(head.ranges);
  record.signals.resize(head.signals);
  take(frame, record.ranges.data(), record.ranges.size());
  take(frame, record.signals.data(), record.signals.size());
  record.bytes = frame.first(head.bytes);
  frame = frame.subspan(padded(head.bytes));
  std::size_t bytes = 0;
  for (auto const& range : record.ranges) {
    if (range.bytes > SIZE_MAX - bytes) return std::nullopt;
    bytes += range.bytes;
  }
  if (!record.apart && bytes != head.bytes) return std::nullopt;
  return record;
}

}  // namespace davit
