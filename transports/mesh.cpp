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

Mesh::Mesh(int rank, Geometry const& geometry, std::string const& directory, Start start, Arrangement arrangement)
    : rank_(rank),
      geometry_(geometry),
      arrangement_(std::move(arrangement)),
      segment_(Segment::create(directory, geometry.control_bytes() + geometry.slots_bytes())),
      own_(segment_.mapping(), geometry),
      peers_(geometry.ranks),
      readers_(std::size_t{geometry.rings} * geometry.slots) {
  segment_.reserve(0, geometry.control_bytes());
  own_.initialise(segment_.ticket().nonce, start.number, start.chunk);
  for (auto& peer : peers_) {
    peer.pushed = peer.pulled = peer.credited = start.chunk;
    peer.cards_done = start.number - 1;
  }
  of(rank).outbox = own_;
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
    if (peer != rank_ && word(peer).load() == identity) return peer;
  }
  return -1;
}

void Mesh::release_device() noexcept { std::atomic_ref(own_.header().device).store(0); }

void Mesh::mark_prepared() noexcept {
  segment_.close_descriptor();
  own_.set_state(OutboxState::prepared);
  prepared_ = true;
}

bool Mesh::can_post(int peer, std::uint32_t number) noexcept {
  auto& done = of(peer).cards_done;
  if (has_reached(done, number - kCardRing)) return true;
  done = load_acquire(own_.credit(peer).cards);
  return has_reached(done, number - kCardRing);
}

void Mesh::post(int peer, std::uint32_t number, Card const& card) noexcept {
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
}

void Mesh::set_reason(std::uint32_t number, std::string_view text) noexcept {
  auto* const to = own_.reason(number);
  auto const length = std::min<std::size_t>(text.size(), kReasonBytes - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
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

void Mesh::end_push(Engine& engine, std::uint32_t place, std::span<int const> readers) {
  readers_[place].clear();
  for (int const reader : readers) {
    count_push(engine, reader, 1);
    readers_[place].push_back({reader, of(reader).pushed});
  }
}

void Mesh::count_push(Engine& engine, int reader, std::uint32_t chunks) {
  of(reader).pushed += chunks;
  engine.submit(Lane::up, RaiseOp{&own_.data(reader), of(reader).pushed});
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

std::optional<Trouble> Mesh::trouble(int peer, bool look_for_death) const {
  auto const& there = of(peer);
  auto const name = "rank " + std::to_string(peer);
  switch (there.outbox.state()) {
    case OutboxState::failed:
      return failure(peer);
    case OutboxState::closed:
      return Trouble{peer, name + " has destroyed its communicator"};
    case OutboxState::created:
    case OutboxState::prepared:
      break;
  }
  if (look_for_death && there.watch != nullptr && there.watch->is_dead()) {
    return Trouble{peer, name + " (process " + std::to_string(there.pid) + ") has died"};
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
  await_readers();
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
  if (own_.state() != OutboxState::failed) own_.set_state(OutboxState::closed);
}

}  // namespace davit
