// SPDX-License-Identifier: Apache-2.0
#include "transports/wire.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "davit/error.hpp"
#include "transports/departures.hpp"

namespace davit {
namespace {

// Credits that nobody is in a hurry for wait for company: a message costs microseconds, at both ends.
constexpr auto kBackDelay = std::chrono::microseconds(100);
// MPI counts bytes in an int.
constexpr std::uint64_t kMostApart = std::uint64_t{1} << 30;

[[noreturn]] void distrust(int from, char const* what) {
  throw PeerError("davit: rank " + std::to_string(from) + " sent " + what, from);
}

bool lies_within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) noexcept {
  return offset <= size && bytes <= size - offset;
}

Counter& counter_at(std::byte* base, std::uint64_t offset) noexcept {
  return *reinterpret_cast<Counter*>(base + offset);
}

void check(int from, std::span<WireSignal const> signals, std::uint64_t size) {
  for (auto const& signal : signals) {
    if (signal.offset % sizeof(Counter) != 0 || !lies_within(signal.offset, sizeof(Counter), size)) {
      distrust(from, "a counter that lies outside of its segment");
    }
  }
}

/// A word that was made good in the meantime does not go back.
void raise(std::byte* base, std::span<WireSignal const> signals) noexcept {
  for (auto const& signal : signals) {
    auto& counter = counter_at(base, signal.offset);
    if (!has_reached(load_acquire(counter), signal.value)) store_release(counter, signal.value);
  }
}

}  // namespace

Wire::Wire(std::unique_ptr<Link> link, NodeMap nodes)
    : nodes_(std::move(nodes)), link_(std::move(link)), all_threads_(link_->allows_all_threads()) {
  sweep_links();
}

Wire::~Wire() {
  std::set<int> peers;
  for (int node = 0; node < nodes_.nodes(); ++node) {
    if (node != nodes_.here()) peers.insert(nodes_.partner(nodes_.rank(), node));
  }
  for (int const owner : nodes_.taken_in_by(nodes_.rank())) peers.insert(owner);
  part_with(std::move(link_), {peers.begin(), peers.end()}, !is_broken());
}

int Wire::add(Mapping own, std::size_t bytes, std::vector<Mirror> mirrors) {
  std::lock_guard const held(mutex_);
  Kept kept{std::move(own), bytes, std::move(mirrors), {}};
  for (auto const& mirror : kept.mirrors) {
    std::vector<Watch> watches;
    for (auto const& where : mirror.watched) {
      auto const* const word = &counter_at(mirror.segment.mapping().get(), where.offset);
      watches.push_back({word, where, load_acquire(*word)});
    }
    kept.watches.push_back(std::move(watches));
  }
  segments_.emplace(next_segment_, std::move(kept));
  return next_segment_++;
}

void Wire::remove(int segment) noexcept {
  std::lock_guard const held(mutex_);
  segments_.erase(segment);
}

void Wire::reserve(Mirror& mirror) {
  if (mirror.reserved == mirror.segment.ticket().bytes) return;
  mirror.segment.reserve(mirror.reserved, mirror.segment.ticket().bytes - mirror.reserved);
  mirror.segment.close_descriptor();
  mirror.reserved = mirror.segment.ticket().bytes;
}

void Wire::put(int node, int segment, std::vector<WireRange> const& ranges, std::vector<WireSignal> const& signals) {
  std::lock_guard const held(mutex_);
  append(nodes_.partner(nodes_.rank(), node), WireLane::now, segment, ranges, signals);
}

void Wire::put_later(int node, int segment, std::vector<WireRange> ranges, std::vector<WireSignal> signals, When when) {
  std::lock_guard const held(mutex_);
  out_[nodes_.partner(nodes_.rank(), node)].later.push_back({segment, std::move(ranges), std::move(signals), when});
}

void Wire::drop_waiting() noexcept {
  std::lock_guard const held(mutex_);
  for (auto& [to, out] : out_) {
    auto const stays = [](Waiting const& put) {
      return put.when.counter == nullptr || has_reached(load_acquire(*put.when.counter), put.when.value);
    };
    out.later.erase(std::ranges::find_if_not(out.later, stays), out.later.end());
  }
}

template <class Step>
bool Wire::guarded(Step step) noexcept {
  if (is_broken()) return false;
  try {
    return step();
  } catch (...) {
    remember(std::current_exception());
    broken_.store(true, std::memory_order_release);
    return false;
  }
}

void Wire::remember(std::exception_ptr error) noexcept {
  if (failure_ != nullptr) return;
  failure_ = std::move(error);
  failed_.store(true, std::memory_order_release);
}

bool Wire::progress() noexcept {
  std::unique_lock const held(mutex_, std::try_to_lock);
  return held && link_->allows_this_thread() && guarded([this] { return progress_locked(); });
}

std::exception_ptr Wire::failure() const noexcept {
  return failed_.load(std::memory_order_acquire) ? failure_ : nullptr;
}

bool Wire::has_put() noexcept {
  std::lock_guard const held(mutex_);
  return guarded([this] { return has_put_locked(); });
}

bool Wire::has_put_locked() {
  for (auto const& [to, out] : out_) {
    if (!out.frames.empty() || !out.apart.empty() || !out.later.empty()) return false;
  }
  return link_->flush();
}

bool Wire::is_idle() noexcept {
  std::lock_guard const held(mutex_);
  for (auto const& [number, kept] : segments_) {
    for (auto const& watches : kept.watches) {
      if (std::ranges::any_of(watches, [](Watch const& w) { return load_acquire(*w.word) != w.told; })) return false;
    }
  }
  return guarded([this] { return has_put_locked(); });
}

Wire::Sent Wire::sent() const noexcept {
  std::lock_guard const held(mutex_);
  return sent_;
}

bool Wire::progress_locked() {
  bool moved = take_in();
  moved = finish_arrivals() || moved;
  append_ready();
  append_back();
  moved = send() || moved;
  // Asking MPI costs system calls, and what has been sent is in nobody's way.
  constexpr std::uint32_t between_flushes = 16;
  if (++turns_ % between_flushes == 0) link_->flush();
  return moved;
}

bool Wire::take_in() {
  bool moved = false;
  while (auto const frame = link_->receive()) {
    auto rest = frame->bytes;
    while (!rest.empty()) {
      auto const record = take_wire_record(rest);
      if (!record) distrust(frame->from, "a message that cannot be read");
      take_in(frame->from, *record);
    }
    moved = true;
  }
  return moved;
}

void Wire::take_in(int from, WireRecord const& record) {
  if (record.lane == WireLane::back) {
    auto const own = segments_.find(record.segment);
    if (own == segments_.end()) return;
    check(from, record.signals, own->second.bytes);
    raise(own->second.own.get(), record.signals);
    return;
  }
  auto& before = came_[from][static_cast<std::size_t>(record.lane)];
  auto arriving = put_in(from, record);
  if (!before.empty() || arriving.transfer) {
    before.push_back(std::move(arriving));
  } else if (auto* const mirror = mirror_of(record.segment, from); mirror != nullptr) {
    raise(mirror->segment.mapping().get(), arriving.signals);
  }
}

bool Wire::has_room(Mirror& mirror, int from, WireRecord const& record) {
  auto const size = mirror.segment.ticket().bytes;
  check(from, record.signals, size);
  for (auto const& range : record.ranges) {
    if (!lies_within(range.offset, range.bytes, size)) distrust(from, "bytes that lie outside of their segment");
    if (range.offset + range.bytes <= mirror.reserved) continue;
    try {
      reserve(mirror);
    } catch (SystemError const&) {
      remember(std::current_exception());
      return false;
    }
  }
  return true;
}

/// Bytes go to their places at once: nobody looks there before the signals say so.
Wire::Arriving Wire::put_in(int from, WireRecord const& record) {
  Arriving arriving{std::nullopt, record.segment, record.signals};
  auto* const mirror = mirror_of(record.segment, from);
  if (mirror == nullptr && record.segment >= next_segment_) distrust(from, "bytes for a segment that is not there");
  bool const stays = mirror != nullptr && has_room(*mirror, from, record);
  std::vector<Piece> pieces;
  Mapping memory;
  if (stays) {
    memory = mirror->segment.mapping();
    for (auto const& range : record.ranges) pieces.push_back({memory.get() + range.offset, range.bytes});
  } else {
    arriving.signals.clear();
    std::size_t bytes = 0;  // they come all the same
    for (auto const& range : record.ranges) bytes += range.bytes;
    if (record.apart) memory = Mapping(new std::byte[bytes], std::default_delete<std::byte[]>());
    pieces.push_back({memory.get(), bytes});
  }
  if (record.apart) {
    arriving.transfer = link_->receive_into(from, static_cast<int>(record.lane), pieces, memory);
  } else if (stays) {
    auto const* bytes = record.bytes.data();
    for (auto const& piece : pieces) {
      std::memcpy(piece.at, bytes, piece.bytes);
      bytes += piece.bytes;
    }
  }
  return arriving;
}

bool Wire::finish_arrivals() {
  bool moved = false;
  for (auto& [from, lanes] : came_) {
    for (auto& lane : lanes) {
      while (!lane.empty() && (!lane.front().transfer || link_->has_come(*lane.front().transfer))) {
        auto* const mirror = mirror_of(lane.front().segment, from);
        if (mirror != nullptr) raise(mirror->segment.mapping().get(), lane.front().signals);
        lane.pop_front();
        moved = true;
      }
    }
  }
  return moved;
}

void Wire::append_ready() {
  for (auto& [to, out] : out_) {
    while (!out.later.empty()) {
      auto const& put = out.later.front();
      if (put.when.counter != nullptr && !has_reached(load_acquire(*put.when.counter), put.when.value)) break;
      append(to, WireLane::later, put.segment, put.ranges, put.signals);
      out.later.pop_front();
    }
  }
}

void Wire::append_back() {
  constexpr std::chrono::steady_clock::time_point none{};
  for (auto& [number, kept] : segments_) {
    for (std::size_t at = 0; at < kept.mirrors.size(); ++at) {
      bool changed = false;
      bool urgent = false;
      for (auto const& watch : kept.watches[at]) {
        auto const raised = load_acquire(*watch.word) - watch.told;
        changed = changed || raised != 0;
        urgent = urgent || raised >= watch.where.urgent;
      }
      if (!changed) continue;
      auto& out = out_[kept.mirrors[at].owner];
      if (!urgent && out.frames.empty()) {
        auto const now = std::chrono::steady_clock::now();
        if (out.changed_since == none) out.changed_since = now;
        if (now - out.changed_since < kBackDelay) continue;
      }
      out.changed_since = none;
      std::vector<WireSignal> signals;
      for (auto& watch : kept.watches[at]) {
        auto const value = load_acquire(*watch.word);
        if (value == watch.told) continue;
        signals.push_back({watch.where.offset, value});
        watch.told = value;
      }
      append(kept.mirrors[at].owner, WireLane::back, number, {}, signals);
    }
  }
}

/// In as many records as it takes; the signals come with the last.
void Wire::append(int to, WireLane lane, int segment, std::vector<WireRange> const& ranges,
                  std::vector<WireSignal> const& signals) {
  auto& out = out_[to];
  std::vector<WireRange> some;
  std::uint64_t bytes = 0;
  for (auto range : ranges) {
    while (range.bytes > 0) {
      auto const part = std::min(range.bytes, kMostApart - bytes);
      some.push_back({range.offset, part});
      bytes += part;
      range = {range.offset + part, range.bytes - part};
      if (bytes < kMostApart && some.size() < kWireRanges) continue;
      append_record(out, lane, segment, some, {});
      some.clear();
      bytes = 0;
    }
  }
  std::span<WireSignal const> rest(signals);
  for (; rest.size() > kWireSignals; rest = rest.subspan(kWireSignals)) {
    append_record(out, lane, segment, some, rest.first(kWireSignals));
    some.clear();
  }
  append_record(out, lane, segment, some, rest);
}

void Wire::append_record(Outgoing& out, WireLane lane, int segment, std::span<WireRange const> ranges,
                         std::span<WireSignal const> signals) {
  std::size_t bytes = 0;
  for (auto const& range : ranges) bytes += range.bytes;
  bool const apart = bytes > kWireInline;
  auto const& memory = segments_.at(segment).own;
  auto* const own = memory.get();
  auto const length = wire_record_bytes(ranges.size(), signals.size(), apart ? 0 : bytes);
  if (out.frames.empty() || out.frames.back().size() + length > Link::kFrameBytes) out.frames.emplace_back();
  append_wire_record(out.frames.back(), lane, segment, ranges, signals, apart ? nullptr : own);
  auto const payload = lane == WireLane::later ? bytes : 0;
  sent_.payload += payload;
  sent_.headers += length + (apart ? bytes : 0) - payload;
  if (!apart) return;
  Apart message{static_cast<int>(lane), {}, memory};
  for (auto const& range : ranges) message.pieces.push_back({own + range.offset, range.bytes});
  out.apart.push_back(std::move(message));
}

bool Wire::send() {
  bool moved = false;
  for (auto& [to, out] : out_) {
    for (auto& frame : out.frames) link_->send(to, std::move(frame));
    for (auto const& message : out.apart) link_->send_from(to, message.lane, message.pieces, message.memory);
    moved = moved || !out.frames.empty();
    sent_.messages += out.frames.size() + out.apart.size();
    out.frames.clear();
    out.apart.clear();
  }
  return moved;
}

Mirror* Wire::mirror_of(int segment, int owner) noexcept {
  auto const kept = segments_.find(segment);
  if (kept == segments_.end()) return nullptr;
  for (auto& mirror : kept->second.mirrors) {
    if (mirror.owner == owner) return &mirror;
  }
  return nullptr;
}

}  // namespace davit
