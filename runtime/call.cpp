// SPDX-License-Identifier: Apache-2.0
#include "runtime/call.hpp"

#include <utility>

#include "davit/error.hpp"

namespace davit::detail {

bool Call::start() {
  // Counters of a pair must rise in call order, whichever engine raises them; and what was enqueued is answered for.
  if (waits_for_streams()) return false;
  pairs_.assign(static_cast<std::size_t>(comm_.size), {});
  bool is_open = false;
  if (is_on_device()) {
    posted_terms_.resize(stream_ ? pairs_.size() : 0);
    is_open = comm_.submission().run(behind(), [&] {
      if (stream_) ticket_ = comm_.device->begin(stream_->handle());
      return open();
    });
  } else {
    is_open = open();
  }
  if (!is_open) return false;
  opened_ = true;
  unread_ = comm_.size - 1;
  bool in_step = stream_.has_value();
  for (int step = 1; step < comm_.size; ++step) in_step = in_step && comm_.mesh->in_step(after(step));
  if (in_step) {
    unsettled_ = std::exchange(unread_, 0);
    for (auto& pair : pairs_) pair.standing = Standing::agreed;
  }
  ++comm_.stats.calls;
  return moved_ = true;
}

bool Call::advance() {
  moved_ = false;
  if (!opened_ && !start()) return false;
  if (posted_ < comm_.size && !post_cards()) return false;
  if (unread_ > 0) read_cards();
  if (!submitted_) submitted_ = is_on_device() ? submit_to_device() : submit();
  if (submitted_) settle();
  if (stream_) {
    if (!submitted_) return false;
    if (refused_ || mismatched_) std::rethrow_exception(trouble());
    for (int step = 1; step < comm_.size && unsettled_ == 0; ++step) comm_.mesh->done_with_card(after(step), number);
    let_go();
    return true;
  }
  if (side_ != nullptr) moved_ = engine().progress() || moved_;
  if (!submitted_ || unread_ > 0 || (side_ != nullptr && !engine().idle())) return false;
  // Cards before this one are given back with it; those of open calls on streams must be read first.
  if (comm_.has_enqueued()) comm_.read_late_cards();
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = after(step);
    throw_if_failed(peer);
    comm_.mesh->done_with_card(peer, number);
  }
  if (refused_ || mismatched_) {
    error = trouble();
    return true;
  }
  try {
    conclude();
  } catch (Error const&) {
    error = std::current_exception();
  }
  return true;
}

void Call::settle() {
  if (!settled) comm_.mesh->settle(number);
  settled = true;
}

/// All cards are read, or taken for granted. The submission may block until peers have submitted as much, and they may
/// wait until we have read their cards, 64 calls back at most. Such cards are here by now: the peer had to read ours of
/// that call before we could write this call's, and reads none before it has written its own.
bool Call::submit_to_device() {
  if (unread_ > 0) return false;
  comm_.read_late_cards();
  auto& device = *comm_.device;
  for (int peer = 0; peer < comm_.size; ++peer) {
    if (peer != comm_.rank && standing(peer) != Standing::agreed) continue;
    if (comm_.mesh->lacks_slots(peer)) {
      throw PeerError("davit: rank " + std::to_string(peer) + " has no slots: it could not prepare", peer);
    }
    device.reach(peer);
  }
  return comm_.submission().run(behind(), [&] {
    auto const end = [&] {  // also of what was submitted in part: the stream must not run ahead of it
      if (stream_) device.end(stream_->handle(), ticket_);
    };
    try {
      bool const whole = submit();
      end();
      return whole;
    } catch (...) {
      end();
      throw;
    }
  });
}

Submission::Behind Call::behind() const noexcept {
  return stream_ ? Submission::Behind::stream : Submission::Behind::nothing;
}

/// A rank that has given up since must be heard of: where cards do not agree there will be no next call with it, and a
/// GPU whose rank has failed may have raised its counters over anything.
void Call::throw_if_failed(int peer) const {
  auto const flags = pairs_[static_cast<std::size_t>(peer)].flags;
  bool const from_device = standing(peer) == Standing::agreed && (flags & kCardDevice) != 0;
  if (!from_device && standing(peer) != Standing::mismatched) return;
  auto const failure = comm_.mesh->failure(peer);
  if (failure) throw PeerError("davit: " + failure->text, failure->culprit);
}

std::exception_ptr Call::trouble() const {
  auto const text = std::string("davit: ") + name_of(operation_) + ": " + trouble_ + comm_.where(number);
  return refused_ ? std::make_exception_ptr(PeerError(text, culprit_)) : std::make_exception_ptr(MismatchError(text));
}

bool Call::post_cards() {
  for (; posted_ < comm_.size; ++posted_) {
    int const peer = after(posted_);
    if (!comm_.mesh->can_post(peer, number)) return false;
    Card card = terms(peer);
    if (stream_) posted_terms_[static_cast<std::size_t>(peer)] = card;
    card.operation = operation_;
    card.detail = detail_;
    if (is_on_device()) card.flags |= kCardDevice;
    comm_.mesh->post(peer, number, card);
    comm_.stats.bytes_cards += sizeof(Card);
  }
  moved_ = true;
  return true;
}

void Call::read_cards() {
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = before(step);
    auto& pair = pairs_[static_cast<std::size_t>(peer)];
    if (pair.standing != Standing::unread) continue;
    auto const* const card = comm_.mesh->late_card(peer, number);
    if (card == nullptr) continue;
    auto const standing = stand_with(peer, *card);
    // Making good writes counters, which a stream may still be raising for an earlier call.
    if ((standing != Standing::agreed || !comm_.mesh->in_step(peer)) && comm_.has_enqueued()) continue;
    pair = {comm_.mesh->card(peer, number), card->flags, standing};
    if (standing == Standing::refused) comm_.mesh->forgive(peer);
    if (standing == Standing::mismatched) comm_.mesh->drop(peer, *card);
    note_trouble(peer, *card, standing);
    --unread_;
    moved_ = true;
  }
}

bool Call::settle_cards(std::vector<bool>& missing) {
  for (int step = 1; step < comm_.size && unsettled_ > 0; ++step) {
    int const peer = before(step);
    auto& pair = pairs_[static_cast<std::size_t>(peer)];
    if (pair.card != nullptr || missing[static_cast<std::size_t>(peer)]) continue;
    auto const* const card = comm_.mesh->late_card(peer, number);
    if (card == nullptr) {
      missing[static_cast<std::size_t>(peer)] = true;
      continue;
    }
    pair = {card, card->flags, stand_with(peer, *card)};
    note_trouble(peer, *card, pair.standing);
    if (pair.standing != Standing::agreed) std::rethrow_exception(trouble());
    // At once: a peer may wait for this before it submits what our stream waits for.
    comm_.mesh->done_with_card(peer, number);
    --unsettled_;
  }
  return unsettled_ == 0;
}

bool Call::has_run() const {
  if (unsettled_ > 0 || !comm_.device->has_ended(ticket_)) return false;
  for (int step = 1; step < comm_.size; ++step) throw_if_failed(after(step));
  return true;
}

Card Call::terms_now(int peer) const {
  return posted_terms_.empty() ? terms(peer) : posted_terms_[static_cast<std::size_t>(peer)];
}

Call::Standing Call::stand_with(int peer, Card const& theirs) const {
  if ((theirs.flags & kCardRefused) != 0) return Standing::refused;
  auto const mine = terms_now(peer);
  bool const agree = theirs.operation == operation_ && theirs.detail == detail_ && mine.sent == theirs.expected &&
                     theirs.sent == mine.expected;
  return agree ? Standing::agreed : Standing::mismatched;
}

void Call::note_trouble(int peer, Card const& theirs, Standing standing) {
  if (standing == Standing::refused) {
    if (!refused_) {  // a refusal voids more than a mismatch does, so its text goes first
      trouble_ = "rank " + std::to_string(peer) + " refused: " + comm_.mesh->reason(peer, number);
      culprit_ = peer;
    }
    refused_ = true;
  } else if (standing == Standing::mismatched) {
    if (!refused_ && !mismatched_) trouble_ = difference(peer, terms_now(peer), theirs);
    mismatched_ = true;
  }
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
    if (auto const chunks = terms(peer).chunks; chunks > 0) comm_.mesh->count_push(engine(), peer, chunks);
    if (standing(peer) == Standing::agreed) comm_.mesh->drop(peer, card(peer));
  }
}

void Call::awaited(std::vector<int>& peers) const {
  if (!opened_) {
    awaited_to_open(peers);
    comm_.awaited_by_enqueued(peers);
    return;
  }
  for (int step = posted_; step < comm_.size; ++step) {
    if (!comm_.mesh->can_post(after(step), number)) peers.push_back(after(step));
  }
  for (int step = 1; step < comm_.size; ++step) {
    auto const& pair = pairs_[static_cast<std::size_t>(before(step))];
    if (pair.card == nullptr) peers.push_back(before(step));
  }
  if (side_ == nullptr) return;
  for (auto const lane : {Lane::up, Lane::down}) {
    if (auto const blocked = engine().blocked(lane)) peers.push_back(blocked->peer);
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
