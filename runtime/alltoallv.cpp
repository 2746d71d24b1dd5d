// SPDX-License-Identifier: Apache-2.0
#include "runtime/alltoallv.hpp"

#include <algorithm>

#include "runtime/staging.hpp"

namespace davit::detail {
namespace {

Card terms_of(Exchange const& exchange, int peer) {
  Card card{};
  card.sent = exchange.send.bytes(peer);
  card.expected = exchange.recv.bytes(peer);
  card.note = note_of(exchange.send.dtype, exchange.recv.dtype);
  return card;
}

}  // namespace

OwnedExchange::OwnedExchange(Exchange const& borrowed) : view_(borrowed) {
  auto const ranks = borrowed.recv.counts.size();
  numbers_.reserve(4 * ranks);
  for (auto* const span : {&view_.send.counts, &view_.send.displs, &view_.recv.counts, &view_.recv.displs}) {
    auto const at = numbers_.size();
    numbers_.insert(numbers_.end(), span->begin(), span->end());
    *span = Counts(numbers_.data() + at, ranks);
  }
}

Card SizeAgreement::terms(int peer) const { return terms_of(exchange_, peer); }

Alltoallv::Alltoallv(CommunicatorState& comm, Side& side, Exchange const& exchange)
    : Call(comm, side, Operation::alltoallv), exchange_(exchange) {}

/// In place the blocks are set aside first: a block may be overwritten by a pull before its own push has run.
bool Alltoallv::open() {
  if (!exchange_.in_place) return true;
  auto& send = exchange_.send;
  std::int64_t total = 0;
  staged_displs_.resize(send.counts.size());
  for (int peer = 0; peer < comm_.size; ++peer) {
    staged_displs_[static_cast<std::size_t>(peer)] = total;
    if (peer != comm_.rank) total += send.counts[static_cast<std::size_t>(peer)];
  }
  staged_ = side().pool()->take(static_cast<std::size_t>(total) * size_of(send.dtype));
  auto* const staged = static_cast<std::byte*>(staged_.get());
  for (int peer = 0; peer < comm_.size; ++peer) {
    if (peer == comm_.rank || send.bytes(peer) == 0) continue;
    auto const at = static_cast<std::size_t>(staged_displs_[static_cast<std::size_t>(peer)]) * size_of(send.dtype);
    engine().submit(Lane::up, CopyOp{staged + at, send.block(peer), send.bytes(peer)});
  }
  side().fence(Lane::up, Lane::down, comm_.rank);
  send.data = staged;
  send.displs = staged_displs_;
  return true;
}

Card Alltoallv::terms(int peer) const {
  auto card = terms_of(exchange_, peer);
  auto const* const block = exchange_.send.block(peer);
  card.chunks = static_cast<std::uint32_t>(chunks_of(card.sent));
  if (engine().can_fetch() && comm_.options.path != Path::slots && comm_.mesh->nodes().is_here(peer)) {
    card.flags |= kCardReads;
    if (card.sent >= comm_.options.direct_bytes &&
        (comm_.direct || comm_.shared.find(comm_.rank, reinterpret_cast<std::uint64_t>(block), card.sent) != nullptr)) {
      card.flags |= kCardReadable;
      card.address = reinterpret_cast<std::uint64_t>(block);
    }
  }
  return card;
}

std::uint64_t Alltoallv::chunks_of(std::uint64_t bytes) const noexcept {
  auto const chunk = comm_.mesh->chunk_bytes(bytes);
  return bytes <= chunk ? (bytes == 0 ? 0 : 1) : (bytes + chunk - 1) / chunk;
}

bool Alltoallv::may_push_direct(int peer) const {
  return exchange_.send.bytes(peer) >= comm_.options.direct_bytes && (terms(peer).flags & kCardReadable) != 0;
}

bool Alltoallv::pushes_direct(int peer) const {
  return may_push_direct(peer) && standing(peer) == Standing::agreed && (card(peer).flags & kCardReads) != 0;
}

bool Alltoallv::pulls_direct(int peer) const {
  return standing(peer) == Standing::agreed && (card(peer).flags & kCardReadable) != 0 &&
         exchange_.recv.bytes(peer) >= comm_.options.direct_bytes && (terms(peer).flags & kCardReads) != 0;
}

void Alltoallv::keep_own() {
  kept_ = true;
  int const me = comm_.rank;
  auto const bytes = exchange_.recv.bytes(me);
  if (exchange_.in_place || bytes == 0) return;
  bool const aside = bytes >= Staging::kLeastBytes;
  if (aside) engine().begin_aside(Lane::down);
  engine().submit(Lane::down, CopyOp{exchange_.recv.block(me), exchange_.send.block(me), bytes});
  if (aside) engine().end_aside(Lane::down);
  comm_.stats.bytes_kept += bytes;
}

void Alltoallv::push_chunk(int step, std::uint64_t chunk) {
  int const peer = after(step);
  auto& mesh = *comm_.mesh;
  auto const block = exchange_.send.bytes(peer);
  auto const length = mesh.chunk_bytes(block);
  auto const place = mesh.place(number, step, chunk) + mesh.ring(comm_.rank, peer);
  auto const bytes = std::min(length, block - chunk * length);
  auto* const to = mesh.begin_push(engine(), place);
  engine().submit(Lane::up, CopyOp{to, exchange_.send.block(peer) + chunk * length, bytes});
  mesh.end_push(engine(), place, {&peer, 1}, bytes);
  comm_.stats.bytes_up += bytes;
  ++comm_.stats.chunks_up;
}

void Alltoallv::pull_chunk(int step, std::uint64_t chunk) {
  int const peer = before(step);
  auto& mesh = *comm_.mesh;
  auto const block = exchange_.recv.bytes(peer);
  auto const length = mesh.chunk_bytes(block);
  auto const bytes = std::min(length, block - chunk * length);
  auto const place = mesh.place(number, step, chunk) + mesh.ring(peer, comm_.rank);
  auto const* const from = mesh.begin_pull(engine(), peer, place);
  engine().submit(Lane::down, CopyOp{exchange_.recv.block(peer) + chunk * length, from, bytes});
  mesh.end_pull(engine(), peer);
  comm_.stats.bytes_down += bytes;
}

/// Submits the next chunk upward. A small block does not wait for its reader's card: it only needs a free slot.
Alltoallv::Next Alltoallv::push_next() {
  for (; push_step_ < comm_.size; ++push_step_, push_chunk_ = 0) {
    int const peer = after(push_step_);
    auto const chunks = chunks_of(exchange_.send.bytes(peer));
    if (push_chunk_ == chunks || standing(peer) == Standing::refused) continue;
    if (standing(peer) == Standing::mismatched) {
      comm_.mesh->count_push(engine(), peer, static_cast<std::uint32_t>(chunks - push_chunk_));
      continue;
    }
    if (push_chunk_ == 0 && may_push_direct(peer)) {
      if (standing(peer) == Standing::unread) return Next::must_wait;
      if (pushes_direct(peer)) {
        comm_.mesh->count_push(engine(), peer, 1);
        continue;
      }
    }
    push_chunk(push_step_, push_chunk_++);
    return Next::submitted;
  }
  return Next::end;
}

/// Submits the next chunk downward; its writer's card says how it comes.
Alltoallv::Next Alltoallv::pull_next() {
  for (; pull_step_ < comm_.size; ++pull_step_, pull_chunk_ = 0) {
    int const peer = before(pull_step_);
    if (standing(peer) == Standing::unread) return Next::must_wait;
    if (standing(peer) != Standing::agreed) continue;
    auto const bytes = exchange_.recv.bytes(peer);
    if (pulls_direct(peer)) {
      auto* const to = exchange_.recv.block(peer);
      auto const address = card(peer).address;
      comm_.mesh->fetch(engine(), peer, number, to, address, comm_.shared.find(peer, address, bytes), bytes);
      comm_.stats.bytes_direct += bytes;
      continue;
    }
    if (pull_chunk_ == chunks_of(bytes)) continue;
    pull_chunk(pull_step_, pull_chunk_++);
    return Next::submitted;
  }
  return Next::end;
}

/// Push and pull in turn, step by step: the order of submission that is itself a schedule.
void Alltoallv::submit_in_turn() {
  auto& mesh = *comm_.mesh;
  for (int step = 1; step < comm_.size; ++step) {
    int const to = after(step);
    int const from = before(step);
    auto pushes = standing(to) == Standing::refused ? 0 : chunks_of(exchange_.send.bytes(to));
    if (standing(to) == Standing::mismatched) {
      mesh.count_push(engine(), to, static_cast<std::uint32_t>(pushes));
      pushes = 0;
    }
    auto const pulls = standing(from) == Standing::agreed ? chunks_of(exchange_.recv.bytes(from)) : 0;
    for (std::uint64_t chunk = 0; chunk < std::max(pushes, pulls); ++chunk) {
      if (chunk < pushes) push_chunk(step, chunk);
      if (chunk < pulls) pull_chunk(step, chunk);
    }
  }
}

bool Alltoallv::submit() {
  if (engine().submits_whole_calls()) {
    if (!all_read()) return false;
    keep_own();
    submit_in_turn();
    engine().seal();
    return true;
  }
  // The two lanes are independent queues here, so one may run ahead: each is in step order by itself.
  Next pushed = Next::submitted;
  Next pulled = Next::submitted;
  while (pushed == Next::submitted) pushed = push_next();
  if (pushed == Next::end) settle();
  if (!kept_) keep_own();
  while (pulled == Next::submitted) pulled = pull_next();
  if (pushed != Next::end || pulled != Next::end || !all_read()) return false;
  if (!holds_submitted_) {
    // Blocks that are read where they lie must stay until their readers are done.
    holds_submitted_ = true;
    for (int step = 1; step < comm_.size; ++step) {
      if (pushes_direct(after(step))) comm_.mesh->hold_for_credit(engine(), after(step));
    }
  }
  return true;
}

}  // namespace davit::detail
