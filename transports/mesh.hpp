// SPDX-License-Identifier: Apache-2.0
/// @file
/// The outboxes of a node as one rank sees them: its own, its peers', and where each pair's counters stand. All
/// protocol state of a rank is here; collectives (runtime/) decide what is pushed and pulled, an engine does it.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transports/engine.hpp"
#include "transports/node_map.hpp"
#include "transports/outbox.hpp"
#include "transports/process_watch.hpp"
#include "transports/segment.hpp"
#include "transports/wire.hpp"

namespace davit {

/// What placement decides of a mesh; equal on all ranks.
struct Arrangement {
  /// Of each rank: which of `Geometry::rings` nodes it sits on. Where all are 0, all slots are in one ring.
  std::vector<std::uint32_t> sites;
  /// Distances 1 to R-1 in the order in which all ranks take them; empty: rising.
  std::vector<int> steps;
};

class Mesh {
 public:
  /// Where numbers start; anything but the defaults is for tests of the wrap.
  struct Start {
    std::uint32_t number = 1;
    std::uint32_t chunk = 0;
  };

  /// Makes this rank's outbox; its control pages are reserved, its slots not yet. @param nodes where ranks sit.
  /// @throws SystemError.
  Mesh(NodeMap nodes, Geometry const& geometry, std::string const& directory, Start start,
       Arrangement arrangement = {});

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] NodeMap const& nodes() const noexcept { return nodes_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(peers_.size()); }
  [[nodiscard]] Geometry const& geometry() const noexcept { return geometry_; }
  [[nodiscard]] Segment& segment() noexcept { return segment_; }
  /// Takes in a peer's mapped outbox; of a peer elsewhere the mirror that is kept of it here.
  void adopt(int peer, Mapping mapping, SegmentTicket const& ticket);
  /// Makes a mirror of the outbox of a rank elsewhere; its control pages are reserved. @throws SystemError.
  [[nodiscard]] Mirror make_mirror(int owner, std::string const& directory) const;
  /// What this rank does from now on is told to the other nodes. @param segment the outboxes' number there.
  void connect(Wire& wire, int segment) noexcept {
    wire_ = &wire;
    outboxes_ = segment;
  }
  /// Reserves the slots, once. @param bind called for each ring with the untouched pages and the site that it is for;
  /// ring 0 is for this rank's own. @throws SystemError; may be tried again.
  template <class Bind>
  void prepare(Bind bind) {
    if (prepared_) return;
    for (std::uint32_t ring = 0; ring < geometry_.rings; ++ring) {
      bind(own_.slot(ring * geometry_.slots), geometry_.ring_bytes(), (site_of(rank_) + ring) % geometry_.rings);
    }
    segment_.reserve(geometry_.control_bytes(), geometry_.slots_bytes());
    if (wire_ != nullptr) {
      wire_->reserve(outboxes_, [&](std::byte* slots, int owner) {
        for (std::uint32_t ring = 0; ring < geometry_.rings; ++ring) {
          bind(slots + ring * geometry_.ring_bytes(), geometry_.ring_bytes(),
               (site_of(owner) + ring) % geometry_.rings);
        }
      });
    }
    mark_prepared();
  }
  [[nodiscard]] bool prepared() const noexcept { return prepared_; }
  /// A rank's whole outbox, its own too.
  [[nodiscard]] Mapping const& mapping(int rank) const noexcept { return of(rank).outbox.mapping(); }
  /// Whether a rank has yet to reserve its slots.
  [[nodiscard]] bool lacks_slots(int rank) const noexcept { return of(rank).outbox.state() == OutboxState::created; }
  /// Says which GPU this rank has taken. @returns a peer that has said the same, or -1. Of two ranks that say
  /// it at once, at least one is told of the other.
  [[nodiscard]] int claim_device(std::uint64_t identity) noexcept;
  void release_device() noexcept;

  // --- Cards. A call posts one to each peer, and is done with the peer's once it knows what it says.

  [[nodiscard]] bool can_post(int peer, std::uint32_t number) noexcept;
  /// `number` and `base` are filled in.
  void post(int peer, std::uint32_t number, Card const& card);
  /// Writes the reason that cards with kCardRefused point to; all rings must have room.
  void set_reason(std::uint32_t number, std::string_view text);
  [[nodiscard]] std::string reason(int peer, std::uint32_t number) const;
  /// The peer's card of a call, or null if it has not come. Also makes good for calls of the peer that this rank
  /// refused: their chunks count as credited.
  [[nodiscard]] Card const* card(int peer, std::uint32_t number) noexcept;
  /// The same without making good: for calls whose chunks this rank has counted already.
  [[nodiscard]] Card const* late_card(int peer, std::uint32_t number) const noexcept;
  /// Whether all that this rank refused was made good, so that the next call's places are known without a card.
  [[nodiscard]] bool in_step(int peer) const noexcept { return of(peer).in_step; }
  /// This rank has refused a call.
  void lose_step(int peer) noexcept { of(peer).in_step = false; }
  /// The peer may write over its cards up to `number`.
  void done_with_card(int peer, std::uint32_t number) noexcept;

  // --- Chunks. Push: begin, fill the slot, end. Pull: begin, read the slot, end. All are submissions to an engine.

  /// The slot that chunk `chunk` of step `step` (1 to R-1; shared exchanges are one step) of a call lies in, at both
  /// ends.
  [[nodiscard]] std::uint32_t place(std::uint32_t number, int step, std::uint64_t chunk) const noexcept;
  /// Bytes of a chunk where `bytes` go to a peer: what is left to come down after the last push hides behind nothing,
  /// so it should be a small part of the whole; but each chunk costs a hand-over. At most a slot, the same at both
  /// ends.
  [[nodiscard]] std::uint64_t chunk_bytes(std::uint64_t bytes) const noexcept;
  /// What to add to that place in a stepped exchange, so that it lies in the ring on the reader's node.
  [[nodiscard]] std::uint32_t ring(int writer, int reader) const noexcept {
    return geometry_.rings == 1
               ? 0
               : (site_of(reader) + geometry_.rings - site_of(writer)) % geometry_.rings * geometry_.slots;
  }
  /// How far the peer of step `step` is: step 1 to R-1 takes each distance from 1 to R-1 once.
  [[nodiscard]] int distance(int step) const noexcept {
    return arrangement_.steps.empty() ? step : arrangement_.steps[static_cast<std::size_t>(step - 1)];
  }
  /// Holds the upward lane until the readers of the slot's last chunk have credited it.
  std::byte* begin_push(Engine& engine, std::uint32_t place);
  /// Tells the readers. @param ranges_of given readers that share a node: the bytes of the slot that they need, as
  /// offsets in it.
  template <std::invocable<std::span<int const>> RangesOf>
  void end_push(Engine& engine, std::uint32_t place, std::span<int const> readers, RangesOf ranges_of) {
    tell(engine, place, readers);
    if (wire_ == nullptr) return;
    for (int node = 0; node < nodes_.nodes(); ++node) {
      if (node == nodes_.here()) continue;
      auto const there = of_node(readers, node);
      if (!there.empty()) send(node, place, there, ranges_of(std::span<int const>(there)));
    }
  }
  /// The same, where the readers need the first `bytes` of the slot.
  void end_push(Engine& engine, std::uint32_t place, std::span<int const> readers, std::size_t bytes) {
    end_push(engine, place, readers, [bytes](auto const&) { return std::vector<WireRange>{{0, bytes}}; });
  }
  /// Counts `chunks` to a reader that will not read them: pairs that disagree, and the direct way's one.
  void count_push(Engine& engine, int reader, std::uint32_t chunks);
  /// Holds the downward lane until the peer's next chunk is there.
  std::byte const* begin_pull(Engine& engine, int peer, std::uint32_t place);
  /// Credits it.
  void end_pull(Engine& engine, int peer);
  /// The direct way: copies the peer's block of call `number` from its `address`, or from `here` where that is mapped,
  /// and credits it as one chunk. The peer cannot leave the call in the middle of it.
  void fetch(Engine& engine, int peer, std::uint32_t number, std::byte* to, std::uint64_t address,
             std::byte const* here, std::size_t bytes);
  /// At once: credits all chunks of the peer's call without reading them.
  void drop(int peer, Card const& card) noexcept;
  /// At once: counts all chunks pushed to a peer that refused the call as credited.
  void forgive(int peer) noexcept;
  /// Holds the upward lane until the peer has credited everything pushed to it.
  void hold_for_credit(Engine& engine, int peer);

  // --- Failure.

  /// Why nothing more will come from a peer for call `number`, if so. One system call where `look_for_death`.
  [[nodiscard]] std::optional<Trouble> trouble(int peer, std::uint32_t number, bool look_for_death) const;
  /// What a peer's header says, if it has failed.
  [[nodiscard]] std::optional<Trouble> failure(int peer) const;
  /// Tells the peers that this rank is out. Local; returns when nobody reads this rank's buffers any more, which takes
  /// as long as a copy that is under way.
  void set_failed(int culprit, std::uint32_t number, std::string_view reason) noexcept;
  void set_closed() noexcept;

  // --- Other nodes. A rank takes in what some ranks elsewhere send to its node.

  /// Tells the other nodes that call `number` needs nothing more of them to push what is submitted, once that has run.
  void settle(std::uint32_t number);
  /// A rank elsewhere whose part of the calls up to `number` has not come yet, and may; -1 if none.
  [[nodiscard]] int unsettled(std::uint32_t number) const noexcept;

 private:
  struct SlotReader {
    int peer;
    std::uint32_t chunk;
  };
  struct Peer {
    Outbox outbox;
    std::uint32_t pushed;  ///< chunks pushed to it, ever
    std::uint32_t pulled;  ///< chunks pulled from it, ever
    // What its credit line said when it was last looked at: as long as that is enough, the line stays in its cache.
    std::uint32_t credited;
    std::uint32_t cards_done;
    bool in_step = true;
    int pid = 0;  ///< of the process that keeps the mapping up to date
    std::shared_ptr<ProcessWatch const> watch;
  };

  void mark_prepared();
  void tell(Engine& engine, std::uint32_t place, std::span<int const> readers);
  void count(Engine& engine, int reader, std::uint32_t chunks);
  void send(int node, std::uint32_t place, std::span<int const> readers, std::vector<WireRange> ranges);
  void send_state();
  template <class Send>
  void for_other_nodes(Send send) const {
    for (int node = 0; wire_ != nullptr && node < nodes_.nodes(); ++node) {
      if (node != nodes_.here()) send(node);
    }
  }
  [[nodiscard]] std::vector<int> of_node(std::span<int const> readers, int node) const;
  template <class T>
  [[nodiscard]] std::uint64_t offset_of(T const& part) const noexcept {
    return static_cast<std::uint64_t>(reinterpret_cast<std::byte const*>(&part) - segment_.mapping().get());
  }
  void await_readers() const noexcept;
  [[nodiscard]] std::optional<Trouble> told_by_its_node(int peer) const;
  [[nodiscard]] bool is_credited(int peer, std::uint32_t chunk) noexcept;
  [[nodiscard]] std::uint32_t site_of(int rank) const noexcept {
    return arrangement_.sites.empty() ? 0 : arrangement_.sites[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Peer& of(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] Peer const& of(int peer) const noexcept { return peers_[static_cast<std::size_t>(peer)]; }

  NodeMap nodes_;
  int rank_;
  Geometry geometry_;
  Start start_;
  Arrangement arrangement_;
  Segment segment_;
  Outbox own_;
  bool prepared_ = false;
  std::vector<Peer> peers_;
  std::vector<int> taken_in_;                     ///< ranks elsewhere whose mirrors this rank keeps
  std::vector<std::vector<SlotReader>> readers_;  ///< of each slot's last chunk
  Wire* wire_ = nullptr;                          ///< null: there is one node
  int outboxes_ = 0;
  int last_reader_ = -1;  ///< of the last push
};

}  // namespace davit
