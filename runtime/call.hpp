// SPDX-License-Identifier: Apache-2.0
/// @file
/// What all collectives share: a card to each peer, every peer's card read, refusals and mismatches found, and then the
/// chunks. A collective derives from Call and says what its cards hold and what it submits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "davit/dtype.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/task.hpp"
#include "transports/card.hpp"

namespace davit::detail {

class Call : public Task {
 public:
  bool advance() final;
  void awaited(std::vector<int>& peers) const final;
  [[nodiscard]] std::string phase() const final { return name_of(operation_); }

 protected:
  using Standing = CommunicatorState::Standing;

  /// @param detail settings of the operation that must be equal on all ranks; explain() puts a difference into words.
  Call(CommunicatorState& comm, Operation operation, std::uint64_t detail = 0)
      : comm_(comm), operation_(operation), detail_(detail) {}

  /// What the card to `peer` says; number, operation, detail and base are filled in.
  [[nodiscard]] virtual Card terms(int peer) const = 0;
  /// Before the cards are posted. @returns false if it must wait.
  virtual bool open() { return true; }
  /// Appends the peers that open() waits for.
  virtual void awaited_to_open(std::vector<int>&) const {}
  /// Submits to the engine what can be submitted now. @returns whether that was the last.
  virtual bool submit() = 0;
  /// All has run, and neither refusal nor mismatch was found.
  virtual void conclude() {}
  /// A difference of `detail` in words, without the ranks: "dtype f32 and bf16".
  [[nodiscard]] virtual std::string explain(std::uint64_t mine, std::uint64_t theirs) const;
  /// A difference of sent and expected in words: what `from` sends and `to` expects.
  [[nodiscard]] virtual std::string disagreement(int from, Card const& sender, int to, Card const& receiver) const;

  [[nodiscard]] Standing standing(int peer) const { return comm_.pairs[static_cast<std::size_t>(peer)].standing; }
  [[nodiscard]] Card const& card(int peer) const { return *comm_.pairs[static_cast<std::size_t>(peer)].card; }
  [[nodiscard]] bool all_read() const noexcept { return unread_ == 0; }
  /// All cards are read and every pair agrees.
  [[nodiscard]] bool all_agreed() const noexcept { return unread_ == 0 && !refused_ && !mismatched_; }
  [[nodiscard]] bool any_refused() const noexcept { return refused_; }
  /// Whom this rank pushes to in a step, and pulls from: rank r + d, r - d, with the same distance d on all ranks.
  [[nodiscard]] int after(int step) const noexcept { return (comm_.rank + comm_.mesh->distance(step)) % comm_.size; }
  [[nodiscard]] int before(int step) const noexcept {
    return (comm_.rank + comm_.size - comm_.mesh->distance(step)) % comm_.size;
  }

  /// Makes the counters of all pairs right without moving anything: this rank's chunks are counted as pushed, the
  /// peers' as taken. For exchanges that are void as a whole once one pair is.
  void settle_all();

  CommunicatorState& comm_;

 private:
  bool post_cards();
  void read_cards();
  void judge(int peer, Card const& theirs);
  [[nodiscard]] std::string difference(int peer, Card const& mine, Card const& theirs) const;
  [[nodiscard]] std::string text_of_trouble() const;
  void throw_if_peer_failed() const;

  Operation operation_;
  std::uint64_t detail_;
  bool opened_ = false;
  int posted_ = 1;  ///< step up to which cards are out
  int unread_ = 0;
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

/// Makes a task of call `number`; what the making throws is told to the peers as a refusal, and thrown here.
template <class Make>
auto make_or_refuse(CommunicatorState& state, std::uint32_t number, bool blocking, Make const& make) {
  try {
    return make();
  } catch (std::exception const& error) {
    state.refuse(number, error.what(), blocking);
    throw;
  }
}

/// A blocking collective: takes a number, prepares, makes the task, runs it to its end.
template <class Make>
void run_blocking(CommunicatorState& state, Make const& make) {
  CommunicatorState::Entry const inside(state);
  auto const number = state.take_number();
  auto task = make_or_refuse(state, number, true, [&] {
    state.prepare();
    return make();
  });
  task.number = number;
  state.run(task);
  if (task.error) std::rethrow_exception(task.error);
}

}  // namespace davit::detail
