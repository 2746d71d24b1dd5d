// SPDX-License-Identifier: Apache-2.0
/// @file
/// An outbox: the segment that one rank writes and its peers read, as laid out in memory. This class is a view; it
/// knows where things lie and nothing of what they mean. See transports/README.md for who writes what, and when.
///
///     header | for each peer: data counter, credit line | for each peer: ring of cards | ring of reasons | slots
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "transports/card.hpp"
#include "transports/counter.hpp"
#include "transports/segment.hpp"

namespace davit {

/// Shape of every outbox of a communicator; equal on all its ranks.
struct Geometry {
  std::uint32_t ranks = 0;
  std::uint32_t slots = 0;       ///< of a ring: both banks together
  std::uint64_t slot_bytes = 0;  ///< payload of one slot
  std::uint32_t rings = 1;  ///< one for each node on which slots lie; more than one only where ranks sit on several

  [[nodiscard]] std::size_t control_bytes() const noexcept;
  [[nodiscard]] std::size_t slots_bytes() const noexcept { return rings * ring_bytes(); }
  [[nodiscard]] std::size_t ring_bytes() const noexcept { return slots * slot_stride(); }
  /// Slots lie a page more than their size apart: at a power of two their first lines would share a few cache sets.
  [[nodiscard]] std::size_t slot_stride() const noexcept { return slot_bytes + 4096; }
};

/// Life of an outbox. Only its owner moves it on.
enum class OutboxState : std::uint32_t { created = 1, prepared, closed, failed };

/// First page of an outbox.
struct OutboxHeader {
  std::uint64_t nonce;  ///< of the segment's ticket
  std::uint64_t magic;  ///< names layout and version
  Geometry geometry;
  std::uint64_t device;             ///< identity of the GPU that the owner has taken, 0 without
  alignas(64) std::uint32_t state;  ///< OutboxState; the words below are written before it says failed
  std::int32_t culprit;             ///< rank that made this one fail, -1 if none
  std::uint32_t number;             ///< of the call that failed
  char reason[kReasonBytes];
  std::uint32_t settled;  ///< in a mirror: number of the last call of which all has come
};
static_assert(sizeof(OutboxHeader) <= 4096);

/// Counters that a peer writes into this outbox: its credits. On a line of their own, away from the owner's words.
struct CreditLine {
  Counter chunks;   ///< chunks of this outbox that the peer has done with
  Counter cards;    ///< number of the last card that the peer has done with
  Counter reading;  ///< direct way: number of the call whose block the peer has begun to read where it lies
  Counter read;     ///< and of the last that it has read
};

/// Why nothing more will come from a peer.
struct Trouble {
  int culprit;       ///< the rank where it began, which may be another than the peer
  std::string text;  ///< "rank 2 (process 4711) has died"
};

/// What the header of a failed outbox says. Its state must have been seen failed.
[[nodiscard]] Trouble failure_of(int peer, OutboxHeader const& header);

class Outbox {
 public:
  static constexpr std::uint64_t kMagic = 0x3230'7469'7661'64ULL;

  Outbox() = default;
  /// A view of a mapped outbox; `mapping` is kept alive by it.
  Outbox(Mapping mapping, Geometry const& geometry) noexcept : mapping_(std::move(mapping)), geometry_(geometry) {}

  /// Owner, once: writes the header, and fills the rings so that no number from `first_number` on seems to be there.
  void initialise(std::uint64_t nonce, std::uint32_t first_number, std::uint32_t first_chunk) noexcept;

  [[nodiscard]] Mapping const& mapping() const noexcept { return mapping_; }
  [[nodiscard]] OutboxHeader& header() const noexcept;
  [[nodiscard]] OutboxState state() const noexcept { return static_cast<OutboxState>(load_acquire(header().state)); }
  void set_state(OutboxState state) const noexcept { store_release(header().state, static_cast<std::uint32_t>(state)); }

  [[nodiscard]] Counter& data(int peer) const noexcept;
  [[nodiscard]] CreditLine& credit(int peer) const noexcept;
  [[nodiscard]] Card& card(int peer, std::uint32_t number) const noexcept;
  [[nodiscard]] char* reason(std::uint32_t number) const noexcept;
  [[nodiscard]] std::byte* slot(std::uint32_t index) const noexcept;

 private:
  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept { return mapping_.get() + offset; }

  Mapping mapping_;
  Geometry geometry_;
};

}  // namespace davit
