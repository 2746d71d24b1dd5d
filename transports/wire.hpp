// SPDX-License-Identifier: Apache-2.0
/// @file
/// The wire between nodes. A rank's segment has a mirror on every other node, in memory that the ranks there map: who
/// reads the segment there reads the mirror, with the same words at the same places. The wire does two things. *Puts*:
/// bytes of the segment, then counters that say so, go to the mirror, once a node. *Back*: counters that readers raise
/// in a mirror (credits) go to the segment. Collectives and engines do not know of it.
///
/// It runs in whoever calls progress(): waiting calls, and a helper thread where MPI allows it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transports/counter.hpp"
#include "transports/link.hpp"
#include "transports/node_map.hpp"
#include "transports/segment.hpp"
#include "transports/wire_record.hpp"

namespace davit {

/// A word of a mirror that a reader raises, by offset. A raise by `urgent` or more since it was last told goes back at
/// once, less than that with the next frame or a moment later.
struct WatchedWord {
  std::uint64_t offset;
  std::uint32_t urgent;
};

/// A mirror that this rank keeps of a rank elsewhere.
struct Mirror {
  int owner;
  Segment segment;
  std::size_t reserved;  ///< bytes with pages; the rest is reserved when bytes come for it
  std::vector<WatchedWord> watched;
};

class Wire {
 public:
  /// A put waits until this counter has reached this value; null: for nothing.
  struct When {
    Counter const* counter = nullptr;
    std::uint32_t value = 0;
  };
  /// What has been sent, ever, in bytes.
  struct Sent {
    std::uint64_t payload = 0;  ///< of later puts: what slots hold
    std::uint64_t headers = 0;  ///< all else: cards, ids, counters, where bytes belong
    std::uint64_t messages = 0;
  };

  Wire(std::unique_ptr<Link> link, NodeMap nodes);
  ~Wire();
  Wire(Wire const&) = delete;
  Wire& operator=(Wire const&) = delete;

  [[nodiscard]] NodeMap const& nodes() const noexcept { return nodes_; }
  /// Whether a thread that nobody waits for may get on with it. Where not, ranks stay in a call until all is settled.
  [[nodiscard]] bool has_own_thread() const noexcept { return all_threads_; }
  [[nodiscard]] bool allows_this_thread() const noexcept { return link_->allows_this_thread(); }

  /// Adds a segment, in the same order on all ranks; before any rank puts to it all must have added it.
  /// @param mirrors one for each of `nodes().taken_in_by(rank)`. @returns its number, the same on all ranks.
  int add(Mapping own, std::size_t bytes, std::vector<Mirror> mirrors);
  /// Local. What still comes for it is dropped.
  void remove(int segment) noexcept;
  /// Reserves the rest of a segment's mirrors. @param bind called with each mirror's unreserved bytes and its owner.
  template <class Bind>
  void reserve(int segment, Bind bind) {
    std::lock_guard const held(mutex_);
    for (auto& mirror : segments_.at(segment).mirrors) {
      if (mirror.reserved == mirror.segment.ticket().bytes) continue;
      bind(mirror.segment.mapping().get() + mirror.reserved, mirror.owner);
      reserve(mirror);
    }
  }

  /// Puts go in order within `now`, and within `later`. @param ranges of this rank's segment, stable until they are
  /// credited. @param signals raised in the mirror after the bytes are there, rising by themselves.
  void put(int node, int segment, std::vector<WireRange> const& ranges, std::vector<WireSignal> const& signals);
  void put_later(int node, int segment, std::vector<WireRange> ranges, std::vector<WireSignal> signals, When when);
  /// Drops puts that wait for what will not come.
  void drop_waiting() noexcept;

  /// Gets on with all of it, unless another thread is at it or this one may not. Never waits. @returns whether anything
  /// moved.
  bool progress() noexcept;
  /// What it met, if anything.
  [[nodiscard]] std::exception_ptr failure() const noexcept;
  /// Whether nothing moves any more: not where a mirror has no room, so that the others can be told.
  [[nodiscard]] bool is_broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Whether all puts have left this rank.
  [[nodiscard]] bool has_put() noexcept;
  /// Whether all words that go back have, too.
  [[nodiscard]] bool is_idle() noexcept;
  [[nodiscard]] Sent sent() const noexcept;

 private:
  struct Watch {
    Counter const* word;
    WatchedWord where;
    std::uint32_t told;
  };
  struct Kept {
    Mapping own;
    std::size_t bytes;
    std::vector<Mirror> mirrors;
    std::vector<std::vector<Watch>> watches;  ///< of each mirror
  };
  struct Waiting {
    int segment;
    std::vector<WireRange> ranges;
    std::vector<WireSignal> signals;
    When when;
  };
  struct Apart {
    int lane;
    std::vector<Piece> pieces;
    Mapping memory;
  };
  /// To one rank: puts to its node, words back to its segment.
  struct Outgoing {
    std::vector<std::vector<std::byte>> frames;  ///< the last may grow
    std::vector<Apart> apart;
    std::deque<Waiting> later;
    std::chrono::steady_clock::time_point changed_since{};  ///< a word that has not gone back; the epoch: none
  };
  /// Signals behind bytes that are on their way.
  struct Arriving {
    std::optional<Link::Transfer> transfer;
    int segment;
    std::vector<WireSignal> signals;
  };

  /// Under the lock; remembers what it throws.
  template <class Step>
  bool guarded(Step step) noexcept;
  void remember(std::exception_ptr error) noexcept;
  bool progress_locked();
  bool has_put_locked();
  bool take_in();
  void take_in(int from, WireRecord const& record);
  [[nodiscard]] Arriving put_in(int from, WireRecord const& record);
  bool finish_arrivals();
  void append_ready();
  void append_back();
  bool send();
  void append(int to, WireLane lane, int segment, std::vector<WireRange> const& ranges,
              std::vector<WireSignal> const& signals);
  void append_record(Outgoing& out, WireLane lane, int segment, std::span<WireRange const> ranges,
                     std::span<WireSignal const> signals);
  [[nodiscard]] Mirror* mirror_of(int segment, int owner) noexcept;
  /// Whether a record's bytes and counters may go there. @throws PeerError.
  [[nodiscard]] bool has_room(Mirror& mirror, int from, WireRecord const& record);
  static void reserve(Mirror& mirror);

  mutable std::mutex mutex_;
  NodeMap const nodes_;
  std::unique_ptr<Link> link_;
  bool const all_threads_;
  std::map<int, Kept> segments_;
  int next_segment_ = 0;
  std::map<int, Outgoing> out_;                              ///< by rank
  std::map<int, std::array<std::deque<Arriving>, 2>> came_;  ///< by rank and lane
  std::uint32_t turns_ = 0;                                  ///< of progress
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> broken_{false};
  Sent sent_;
};

}  // namespace davit
