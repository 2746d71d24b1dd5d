// SPDX-License-Identifier: Apache-2.0
/// @file
/// What all collectives share: a card to each peer, every peer's card read, refusals and mismatches found, and then the
/// chunks. A collective derives from Call and says what its cards hold and what it submits.
///
/// A call on a stream is done for its caller once all is submitted, on the assumption that the peers agree; whether
/// they did is found out later (settle), and a peer that did not fails the communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "davit/dtype.hpp"
#include "davit/stream.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/task.hpp"
#include "transports/card.hpp"

namespace davit::detail {

class Call : public Task {
 public:
  bool advance() final;
  void awaited(std::vector<int>& peers) const final;
  [[nodiscard]] std::string phase() const final { return name_of(operation_); }
  [[nodiscard]] bool uses_device() const noexcept final { return is_on_device() && !stream_; }
  [[nodiscard]] bool waits_for_streams() const noexcept final {
    return !opened_ && side_ != nullptr && !stream_ && comm_.has_enqueued();
  }

  /// Before it is run: it belongs to a stream. Only on the device side.
  void put_on(Stream stream) noexcept { stream_ = stream; }
  /// Keeps memory that it uses until it has run.
  void keep(std::shared_ptr<void> memory) noexcept { kept_memory_ = std::move(memory); }
  /// Of a call on a stream that is submitted: reads the cards that have come. @param missing peers whose card of an
  /// earlier call has not come; those of this one are added. @returns whether all have. @throws PeerError,
  /// MismatchError.
  bool settle_cards(std::vector<bool>& missing);
  /// Whether it has run, and rightly. @throws PeerError if a peer failed while it did.
  [[nodiscard]] bool has_run() const;
  /// Whether its stream has come to it.
  [[nodiscard]] bool has_begun() const noexcept { return comm_.device->has_begun(ticket_); }

 protected:
  /// How this rank stands with a peer.
  enum class Standing : std::uint8_t { unread, agreed, mismatched, refused };

  /// @param side where its buffers are. @param detail settings of the operation that must be equal on all ranks;
  /// explain() puts a difference into words.
  Call(CommunicatorState& comm, Side& side, Operation operation, std::uint64_t detail = 0)
      : comm_(comm), side_(&side), operation_(operation), detail_(detail) {}
  /// One that moves nothing.
  Call(CommunicatorState& comm, Operation operation, std::uint64_t detail = 0)
      : comm_(comm), operation_(operation), detail_(detail) {}

  /// What the card to `peer` says; number, operation, detail and base are filled in.
  [[nodiscard]] virtual Card terms(int peer) const = 0;
  /// Before the cards are posted. @returns false if it must wait.
  virtual bool open() { return true; }
  /// Appends the peers that open() waits for.
  virtual void awaited_to_open(std::vector<int>&) const {}
  /// Submits to the engine what can be submitted now; where the engine takes whole calls, only called once all cards
  /// are read. @returns whether that was the last.
  virtual bool submit() = 0;
  /// All has run, and neither refusal nor mismatch was found. @throws what makes the call void on this rank.
  virtual void conclude() {}
  /// On a stream, once all is submitted: drops what is not needed to judge cards, and might keep the communicator
  /// alive.
  virtual void let_go() {}
  /// A difference of `detail` in words, without the ranks: "dtype f32 and bf16".
  [[nodiscard]] virtual std::string explain(std::uint64_t mine, std::uint64_t theirs) const;
  /// A difference of sent and expected in words: what `from` sends and `to` expects.
  [[nodiscard]] virtual std::string disagreement(int from, Card const& sender, int to, Card const& receiver) const;

  [[nodiscard]] Side& side() const noexcept { return *side_; }
  [[nodiscard]] Engine& engine() const noexcept { return side_->engine(); }
  [[nodiscard]] bool is_on_device() const noexcept { return side_ != nullptr && side_ != &comm_.host; }
  [[nodiscard]] Standing standing(int peer) const { return pairs_[static_cast<std::size_t>(peer)].standing; }
  /// The peer's card; not for a call on a stream.
  [[nodiscard]] Card const& card(int peer) const { return *pairs_[static_cast<std::size_t>(peer)].card; }
  [[nodiscard]] bool all_read() const noexcept { return unread_ == 0; }
  /// All cards are read and every pair agrees.
  [[nodiscard]] bool all_agreed() const noexcept { return unread_ == 0 && !refused_ && !mismatched_; }
  [[nodiscard]] bool any_refused() const noexcept { return refused_; }
  /// Whom this rank pushes to in a step, and pulls from: rank r + d, r - d, with the same distance d on all ranks.
  [[nodiscard]] int after(int step) const noexcept { return (comm_.rank + comm_.mesh->distance(step)) % comm_.size; }
  [[nodiscard]] int before(int step) const noexcept {
    return (comm_.rank + comm_.size - comm_.mesh->distance(step)) % comm_.size;
  }

  /// All of the call's pushes are submitted: other nodes hear of it right behind the last.
  void settle();
  /// Makes the counters of all pairs right without moving anything: this rank's chunks are counted as pushed, the
  /// peers' as taken. For exchanges that are void as a whole once one pair is.
  void settle_all();

  CommunicatorState& comm_;

 private:
  struct Pair {
    Card const* card = nullptr;  ///< ours to read until we say that we have
    std::uint16_t flags = 0;     ///< of the card
    Standing standing = Standing::unread;
  };

  bool start();
  bool post_cards();
  void read_cards();
  bool submit_to_device();
  [[nodiscard]] Submission::Behind behind() const noexcept;
  [[nodiscard]] Card terms_now(int peer) const;
  [[nodiscard]] Standing stand_with(int peer, Card const& theirs) const;
  /// Remembers why the call is void.
  void note_trouble(int peer, Card const& theirs, Standing standing);
  [[nodiscard]] std::exception_ptr trouble() const;
  [[nodiscard]] std::string difference(int peer, Card const& mine, Card const& theirs) const;
  void throw_if_failed(int peer) const;

  Side* side_ = nullptr;
  Operation operation_;
  std::uint64_t detail_;
  std::optional<Stream> stream_;
  std::uint32_t ticket_ = 0;
  std::vector<Pair> pairs_;
  std::vector<Card> posted_terms_;  ///< on a stream
  std::shared_ptr<void> kept_memory_;
  bool opened_ = false;
  int posted_ = 1;  ///< step up to which cards are out
  int unread_ = 0;
  int unsettled_ = 0;  ///< on a stream: cards that were taken for granted
  bool refused_ = false;
  bool mismatched_ = false;
  bool submitted_ = false;
  std::string trouble_;  ///< text of the first refusal or mismatch
  int culprit_ = -1;
};

/// Bytes in words: "16 bytes (4 x f32)".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes, Dtype dtype);
/// A card's note: dtypes of what is sent and of what is expected.
[[nodiscard]] constexpr std::uint64_t note_of(Dtype sent, Dtype expected) noexcept {
  return static_cast<std::uint64_t>(sent) | static_cast<std::uint64_t>(expected) << 8;
}

}  // namespace davit::detail
