// SPDX-License-Identifier: Apache-2.0
#include "transports/mesh.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

namespace davit {
namespace {

constexpr std::uint64_t kLeastChunk = 512 << 10;

}  // namespace

Mesh::Mesh(NodeMap nodes, Geometry const& geometry, std::string const& directory, Start start, Arrangement arrangement)
    : nodes_(std::move(nodes)),
      rank_(nodes_.rank()),
      geometry_(geometry),
      start_(start),
      arrangement_(std::move(arrangement)),
      segment_(Segment::create(directory, geometry.control_bytes() + geometry.slots_bytes())),
      own_(segment_.mapping(), geometry),
      peers_(geometry.ranks),
      taken_in_(nodes_.taken_in_by(rank_)),
      readers_(std::size_t{geometry.rings} * geometry.slots) {
  segment_.reserve(0, geometry.control_bytes());
  own_.initialise(segment_.ticket().nonce, start.number, start.chunk);
  for (auto& peer : peers_) {
    peer.pushed = peer.pulled = peer.credited = start.chunk;
    peer.cards_done = start.number - 1;
  }
  of(rank_).outbox = own_;
}

Mirror Mesh::make_mirror(int owner, std::string const& directory) const {
  auto segment = Segment::create(directory, geometry_.control_bytes() + geometry_.slots_bytes());
  segment.reserve(0, geometry_.control_bytes());
  Outbox outbox(segment.mapping(), geometry_);
  outbox.initialise(segment.ticket().nonce, start_.number, start_.chunk);
  std::vector<WatchedWord> watched;
  for (int const reader : nodes_.ranks_of(nodes_.here())) {
    auto const& line = own_.credit(reader);
    watched.push_back({offset_of(line.chunks), std::max(geometry_.slots / 4, 1U)});
    watched.push_back({offset_of(line.cards), kCardRing / 4});
  }
  return {owner, std::move(segment), geometry_.control_bytes(), std::move(watched)};
}

void Mesh::adopt(int peer, Mapping mapping, SegmentTicket const& ticket) {
  if (peer == rank_) return;
  of(peer).outbox = Outbox(std::move(mapping), geometry_);
  if (ticket.pid_namespace != segment_.ticket().pid_namespace) return;
  of(peer).pid = ticket.pid;
  of(peer).watch = ProcessWatch::of(ticket.pid);
}

int Mesh::claim_device(std::uint64_t identity) noexcept {
  auto const word = [this](int rank) { return std::atomic_ref(of(rank).outbox.header().device); };
  word(rank_).store(identity);  // sequentially consistent, as the loads: see above
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && nodes_.is_here(peer) && word(peer).load() == identity) return peer;
  }
  return -1;
}

void Mesh::release_device() noexcept { std::atomic_ref(own_.header().device).store(0); }

void Mesh::mark_prepared() {
  segment_.close_descriptor();
  own_.set_state(OutboxState::prepared);
  prepared_ = true;
  for_other_nodes([&](int node) {
    wire_->put(node, outboxes_, {}, {{offset_of(own_.header().state), own_.header().state}});
  });
}

bool Mesh::can_post(int peer, std::uint32_t number) noexcept {
  auto& done = of(peer).cards_done;
  if (has_reached(done, number - kCardRing)) return true;
  done = load_acquire(own_.credit(peer).cards);
  return has_reached(done, number - kCardRing);
}

void Mesh::post(int peer, std::uint32_t number, Card const& card) {
  auto& place = own_.card(peer, number);
  // Until `number` says otherwise the reader looks at nothing else of the line, so the rest may be stored plainly.
  place.operation = card.operation;
  place.flags = card.flags;
  place.sent = card.sent;
  place.expected = card.expected;
  place.address = card.address;
  place.detail = card.detail;
  place.base = of(peer).pushed;
  place.chunks = card.chunks;
  place.note = card.note;
  store_release(place.number, number);
  if (wire_ == nullptr || nodes_.is_here(peer)) return;
  constexpr std::uint64_t number_bytes = sizeof place.number;
  auto const offset = offset_of(place);
  wire_->put(nodes_.node_of(peer), outboxes_, {{offset + number_bytes, sizeof place - number_bytes}},
             {{offset, number}});
}

void Mesh::set_reason(std::uint32_t number, std::string_view text) {
  auto* const to = own_.reason(number);
  auto const length = std::min<std::size_t>(text.size(), kReasonBytes - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
  for_other_nodes([&](int node) { wire_->put(node, outboxes_, {{offset_of(*to), length + 1}}, {}); });
}

std::string Mesh::reason(int peer, std::uint32_t number) const {
  auto const* const text = of(peer).outbox.reason(number);
  return {text, strnlen(text, kReasonBytes)};
}

Card const* Mesh::card(int peer, std::uint32_t number) noexcept {
  auto& there = of(peer);
  auto const& card = there.outbox.card(rank_, number);
  if (load_acquire(card.number) != number) return nullptr;
  there.in_step = true;
  if (there.pulled != card.base) {
    there.pulled = card.base;
    store_release(there.outbox.credit(rank_).chunks, card.base);
  }
  return &card;
}

Card const* Mesh::late_card(int peer, std::uint32_t number) const noexcept {
  auto const& card = of(peer).outbox.card(rank_, number);
  return load_acquire(card.number) == number ? &card : nullptr;
}

void Mesh::done_with_card(int peer, std::uint32_t number) noexcept {
  store_release(of(peer).outbox.credit(rank_).cards, number);
}

std::uint32_t Mesh::place(std::uint32_t number, int step, std::uint64_t chunk) const noexcept {
  // Calls and steps start one after the other around the ring, so that short blocks find free slots without waiting.
  auto const start = number * (geometry_.ranks - 1) + static_cast<std::uint32_t>(step - 1);
  auto const slots = geometry_.slots;
  auto const turn = static_cast<std::uint32_t>(chunk < slots ? chunk : chunk % slots);
  return (start % slots + turn) % slots;
}

bool Mesh::is_credited(int peer, std::uint32_t chunk) noexcept {
  auto& credited = of(peer).credited;
  if (has_reached(credited, chunk)) return true;
  credited = load_acquire(own_.credit(peer).chunks);
  return has_reached(credited, chunk);
}

/// With S bytes in chunks of c a hand-over of h bytes' time costs S / c times h, and the last way down c: least where c
/// is the root of S times h.
std::uint64_t Mesh::chunk_bytes(std::uint64_t bytes) const noexcept {
  constexpr double hand_over = 256 << 10;  // 5 microseconds of a PCIe 5.0 link
  if (bytes <= kLeastChunk) return std::min(kLeastChunk, geometry_.slot_bytes);
  auto const best = std::bit_floor(static_cast<std::uint64_t>(std::sqrt(static_cast<double>(bytes) * hand_over)));
  return std::clamp(best, std::min(kLeastChunk, geometry_.slot_bytes), geometry_.slot_bytes);
}

std::byte* Mesh::begin_push(Engine& engine, std::uint32_t place) {
  for (auto const& reader : readers_[place]) {
    if (is_credited(reader.peer, reader.chunk)) continue;
    engine.submit(Lane::up, HoldOp{&own_.credit(reader.peer).chunks, reader.chunk, reader.peer, Awaited::credit});
  }
  return own_.slot(place);
}

void Mesh::tell(Engine& engine, std::uint32_t place, std::span<int const> readers) {
  readers_[place].clear();
  for (int const reader : readers) {
    count(engine, reader, 1);
    readers_[place].push_back({reader, of(reader).pushed});
  }
}

void Mesh::count(Engine& engine, int reader, std::uint32_t chunks) {
  of(reader).pushed += chunks;
  last_reader_ = reader;
  engine.submit(Lane::up, RaiseOp{&own_.data(reader), of(reader).pushed});
}

void Mesh::count_push(Engine& engine, int reader, std::uint32_t chunks) {
  count(engine, reader, chunks);
  if (wire_ == nullptr || nodes_.is_here(reader)) return;
  auto const& data = own_.data(reader);
  wire_->put_later(nodes_.node_of(reader), outboxes_, {}, {{offset_of(data), of(reader).pushed}},
                   {&data, of(reader).pushed});
}

std::vector<int> Mesh::of_node(std::span<int const> readers, int node) const {
  std::vector<int> there;
  for (int const reader : readers) {
    if (nodes_.node_of(reader) == node) there.push_back(reader);
  }
  return there;
}

/// Once the engine has told the last of these readers, which is after the bytes are in the slot.
void Mesh::send(int node, std::uint32_t place, std::span<int const> readers, std::vector<WireRange> ranges) {
  auto const slot = offset_of(*own_.slot(place));
  for (auto& range : ranges) range.offset += slot;
  std::vector<WireSignal> signals;
  for (int const reader : readers) signals.push_back({offset_of(own_.data(reader)), of(reader).pushed});
  wire_->put_later(node, outboxes_, std::move(ranges), std::move(signals),
                   {&own_.data(readers.back()), of(readers.back()).pushed});
}

std::byte const* Mesh::begin_pull(Engine& engine, int peer, std::uint32_t place) {
  auto& there = of(peer);
  ++there.pulled;
  engine.submit(Lane::down, HoldOp{&there.outbox.data(rank_), there.pulled, peer, Awaited::data});
  return there.outbox.slot(place);
}

void Mesh::end_pull(Engine& engine, int peer) {
  engine.submit(Lane::down, RaiseOp{&of(peer).outbox.credit(rank_).chunks, of(peer).pulled});
}

void Mesh::fetch(Engine& engine, int peer, std::uint32_t number, std::byte* to, std::uint64_t address,
                 std::byte const* here, std::size_t bytes) {
  auto const& outbox = of(peer).outbox;
  engine.submit(Lane::down,
                FetchOp{to, peer, address, here, bytes, number, &outbox.credit(rank_), &outbox.header(), false});
  ++of(peer).pulled;
  end_pull(engine, peer);
}

void Mesh::drop(int peer, Card const& card) noexcept {
  auto& there = of(peer);
  there.pulled = card.base + card.chunks;
  store_release(there.outbox.credit(rank_).chunks, there.pulled);
}

void Mesh::forgive(int peer) noexcept {
  of(peer).credited = of(peer).pushed;
  store_release(own_.credit(peer).chunks, of(peer).pushed);
}

void Mesh::hold_for_credit(Engine& engine, int peer) {
  engine.submit(Lane::up, HoldOp{&own_.credit(peer).chunks, of(peer).pushed, peer, Awaited::credit});
}

std::optional<Trouble> Mesh::trouble(int peer, std::uint32_t number, bool look_for_death) const {
  auto const& there = of(peer);
  auto const name = "rank " + std::to_string(peer);
  switch (there.outbox.state()) {
    case OutboxState::failed:
      return failure(peer);
    case OutboxState::closed:
      // Its credits come another way, by the rank that takes in what this one sends, and may be late.
      if (!nodes_.is_here(peer) && has_reached(load_acquire(there.outbox.header().settled), number)) break;
      return Trouble{peer, name + " has destroyed its communicator"};
    case OutboxState::created:
    case OutboxState::prepared:
      break;
  }
  if (look_for_death && there.watch != nullptr && there.watch->is_dead()) {
    auto const died = " (process " + std::to_string(there.pid) + ") has died";
    if (nodes_.is_here(peer)) return Trouble{peer, name + died};
    int const partner = nodes_.partner(peer, nodes_.here());
    return Trouble{partner, "rank " + std::to_string(partner) + died + "; it took in what " + name + " sends"};
  }
  return told_by_its_node(peer);
}

/// Those that share a node with a rank elsewhere hear of its death first; it tells nobody itself.
std::optional<Trouble> Mesh::told_by_its_node(int peer) const {
  if (nodes_.is_here(peer)) return std::nullopt;
  for (int const neighbor : nodes_.ranks_of(nodes_.node_of(peer))) {
    auto const& outbox = of(neighbor).outbox;
    if (outbox.state() == OutboxState::failed && outbox.header().culprit == peer) return failure(neighbor);
  }
  return std::nullopt;
}

std::optional<Trouble> Mesh::failure(int peer) const {
  auto const& outbox = of(peer).outbox;
  if (outbox.state() != OutboxState::failed) return std::nullopt;
  return failure_of(peer, outbox.header());
}

void Mesh::set_failed(int culprit, std::uint32_t number, std::string_view reason) noexcept {
  constexpr std::string_view prefix = "davit: ";  // whoever quotes it begins with the same
  if (reason.starts_with(prefix)) reason.remove_prefix(prefix.size());
  auto& header = own_.header();
  auto const length = std::min<std::size_t>(reason.size(), kReasonBytes - 1);
  std::memcpy(header.reason, reason.data(), length);
  header.reason[length] = '\0';
  header.culprit = culprit;
  header.number = number;
  store_in_order(header.state, static_cast<std::uint32_t>(OutboxState::failed));
  if (wire_ != nullptr) wire_->drop_waiting();
  send_state();
  await_readers();
}

/// After all that has been sent before.
void Mesh::send_state() {
  auto const& header = own_.header();
  auto const first = offset_of(header.culprit);
  for_other_nodes([&](int node) {
    wire_->put_later(node, outboxes_, {{first, offset_of(header.reason) + kReasonBytes - first}},
                     {{offset_of(header.state), header.state}}, {});
  });
}

/// A peer that began before it saw the failure reads on to the end, then finds it; one that begins later reads nothing.
void Mesh::await_readers() const noexcept {
  constexpr auto patience = std::chrono::seconds(10);  // a copy in memory takes less, and a dead reader takes nothing
  auto const deadline = std::chrono::steady_clock::now() + patience;
  for (int peer = 0; peer < size(); ++peer) {
    auto const& line = own_.credit(peer);
    while (load_in_order(line.reading) != load_acquire(line.read)) {
      auto const& watch = of(peer).watch;
      if (std::chrono::steady_clock::now() > deadline || (watch != nullptr && watch->is_dead())) break;
      std::this_thread::yield();
    }
  }
}

void Mesh::set_closed() noexcept {
  if (own_.state() == OutboxState::failed) return;
  own_.set_state(OutboxState::closed);
  send_state();
}

/// The last push of all, to whatever node, may wait for credits from any.
void Mesh::settle(std::uint32_t number) {
  Wire::When when;
  if (last_reader_ >= 0) when = {&own_.data(last_reader_), of(last_reader_).pushed};
  for_other_nodes([&](int node) {
    wire_->put_later(node, outboxes_, {}, {{offset_of(own_.header().settled), number}}, when);
  });
}

int Mesh::unsettled(std::uint32_t number) const noexcept {
  for (int const owner : taken_in_) {
    auto const& outbox = of(owner).outbox;
    if (has_reached(load_acquire(outbox.header().settled), number)) continue;
    if (outbox.state() == OutboxState::created || outbox.state() == OutboxState::prepared) return owner;
  }
  return -1;
}

}  // namespace davit
