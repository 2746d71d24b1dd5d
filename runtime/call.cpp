// SPDX-License-Identifier: Apache-2.0
#include "runtime/call.hpp"

#include "davit/error.hpp"

namespace davit::detail {

bool Call::advance() {
  moved_ = false;
  if (!opened_) {
    if (!open()) return false;
    opened_ = true;
    unread_ = comm_.size - 1;
    for (auto& pair : comm_.pairs) pair = {};
    ++comm_.stats.calls;
    moved_ = true;
  }
  if (posted_ < comm_.size && !post_cards()) return false;
  if (unread_ > 0) read_cards();
  if (!submitted_) submitted_ = submit();
  moved_ = comm_.engine->progress() || moved_;
  if (!submitted_ || unread_ > 0 || !comm_.engine->idle()) return false;
  for (int step = 1; step < comm_.size; ++step) comm_.mesh->done_with_card(after(step), number);
  if (refused_) {
    error = std::make_exception_ptr(PeerError(text_of_trouble(), culprit_));
  } else if (mismatched_) {
    throw_if_peer_failed();
    error = std::make_exception_ptr(MismatchError(text_of_trouble()));
  } else {
    conclude();
  }
  return true;
}

/// Who meets the card of a rank that has given up since must hear of that: there will be no next call with it.
void Call::throw_if_peer_failed() const {
  for (int step = 1; step < comm_.size; ++step) {
    if (standing(after(step)) != Standing::mismatched) continue;
    auto const trouble = comm_.mesh->trouble(after(step), false);
    if (trouble) throw PeerError("davit: " + trouble->text, trouble->culprit);
  }
}

std::string Call::text_of_trouble() const {
  return std::string("davit: ") + name_of(operation_) + ": " + trouble_ + comm_.where(number);
}

bool Call::post_cards() {
  for (; posted_ < comm_.size; ++posted_) {
    int const peer = after(posted_);
    if (!comm_.mesh->can_post(peer, number)) return false;
    Card card = terms(peer);
    card.operation = operation_;
    card.detail = detail_;
    comm_.mesh->post(peer, number, card);
    comm_.stats.bytes_cards += sizeof(Card);
  }
  moved_ = true;
  return true;
}

void Call::read_cards() {
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = before(step);
    auto& pair = comm_.pairs[static_cast<std::size_t>(peer)];
    if (pair.standing != Standing::unread) continue;
    pair.card = comm_.mesh->card(peer, number);
    if (pair.card == nullptr) continue;
    judge(peer, *pair.card);
    --unread_;
    moved_ = true;
  }
}

void Call::judge(int peer, Card const& theirs) {
  auto& standing = comm_.pairs[static_cast<std::size_t>(peer)].standing;
  if ((theirs.flags & kCardRefused) != 0) {
    standing = Standing::refused;
    comm_.mesh->forgive(peer);
    if (!refused_) {  // a refusal voids more than a mismatch does, so its text goes first
      trouble_ = "rank " + std::to_string(peer) + " refused: " + comm_.mesh->reason(peer, number);
      culprit_ = peer;
    }
    refused_ = true;
    return;
  }
  auto const mine = terms(peer);
  if (theirs.operation == operation_ && theirs.detail == detail_ && mine.sent == theirs.expected &&
      theirs.sent == mine.expected) {
    standing = Standing::agreed;
    return;
  }
  standing = Standing::mismatched;
  comm_.mesh->drop(peer, theirs);
  if (!refused_ && !mismatched_) trouble_ = difference(peer, mine, theirs);
  mismatched_ = true;
}

std::string Call::difference(int peer, Card const& mine, Card const& theirs) const {
  auto const me = "rank " + std::to_string(comm_.rank);
  auto const other = "rank " + std::to_string(peer);
  if (theirs.operation != operation_) {
    return me + " calls " + name_of(operation_) + ", " + other + " calls " + name_of(theirs.operation);
  }
  if (theirs.detail != detail_) return me + " and " + other + " disagree: " + explain(detail_, theirs.detail);
  if (mine.sent != theirs.expected) return disagreement(comm_.rank, mine, peer, theirs);
  return disagreement(peer, theirs, comm_.rank, mine);
}

void Call::settle_all() {
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = after(step);
    if (standing(peer) == Standing::refused) continue;
    if (auto const chunks = terms(peer).chunks; chunks > 0) comm_.mesh->count_push(*comm_.engine, peer, chunks);
    if (standing(peer) == Standing::agreed) comm_.mesh->drop(peer, card(peer));
  }
}

void Call::awaited(std::vector<int>& peers) const {
  if (!opened_) {
    awaited_to_open(peers);
    return;
  }
  for (int step = posted_; step < comm_.size; ++step) {
    if (!comm_.mesh->can_post(after(step), number)) peers.push_back(after(step));
  }
  for (int step = 1; step < comm_.size; ++step) {
    if (standing(before(step)) == Standing::unread) peers.push_back(before(step));
  }
  for (auto const lane : {Lane::up, Lane::down}) {
    if (auto const blocked = comm_.engine->blocked(lane)) peers.push_back(blocked->peer);
  }
}

std::string Call::explain(std::uint64_t mine, std::uint64_t theirs) const {
  return "setting " + std::to_string(mine) + " and " + std::to_string(theirs);
}

std::string Call::disagreement(int from, Card const& sender, int to, Card const& receiver) const {
  return "rank " + std::to_string(from) + " sends " + bytes_text(sender.sent, static_cast<Dtype>(sender.note & 0xff)) +
         " to rank " + std::to_string(to) + ", which expects " +
         bytes_text(receiver.expected, static_cast<Dtype>(receiver.note >> 8 & 0xff));
}

std::string bytes_text(std::uint64_t bytes, Dtype dtype) {
  auto text = std::to_string(bytes) + " bytes";
  if (auto const size = size_of(dtype); size > 0) {
    text += " (" + std::to_string(bytes / size) + " x " + name_of(dtype) + ")";
  }
  return text;
}

}  // namespace davit::detail
