// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/shared_exchanges.hpp"

namespace davit::detail {

Allgatherv::Allgatherv(CommunicatorState& comm, Side& side, std::byte const* send, std::uint64_t send_bytes,
                       Dtype send_dtype, Blocks const& recv)
    : Call(comm, side, Operation::allgatherv),
      send_(send),
      send_bytes_(send_bytes),
      send_dtype_(send_dtype),
      counts_(recv.counts.begin(), recv.counts.end()),
      displs_(recv.displs.begin(), recv.displs.end()),
      recv_{recv.data, counts_, displs_, recv.dtype} {
  if (send_ == nullptr) {
    send_ = recv_.block(comm.rank);
    send_bytes_ = recv_.bytes(comm.rank);
    send_dtype_ = recv_.dtype;
  }
}

Card Allgatherv::terms(int peer) const {
  Card card{};
  card.sent = send_bytes_;
  card.expected = recv_.bytes(peer);
  card.note = note_of(send_dtype_, recv_.dtype);
  card.chunks = static_cast<std::uint32_t>(chunks_of(send_bytes_));
  if (engine().can_fetch() && comm_.options.path != Path::slots && comm_.mesh->nodes().is_here(peer)) {
    auto const address = reinterpret_cast<std::uint64_t>(send_);
    card.flags |= kCardReads;
    if (comm_.direct || comm_.shared.find(comm_.rank, address, send_bytes_) != nullptr) {
      card.flags |= kCardReadable;
      card.address = address;
    }
  }
  return card;
}

std::uint64_t Allgatherv::chunks_of(std::uint64_t bytes) const noexcept {
  auto const chunk = comm_.mesh->chunk_bytes(bytes);
  return (bytes + chunk - 1) / chunk;
}

bool Allgatherv::goes_direct(std::uint16_t writer_flags, std::uint16_t reader_flags, std::uint64_t bytes) const {
  return bytes >= comm_.options.direct_bytes && (writer_flags & kCardReadable) != 0 && (reader_flags & kCardReads) != 0;
}

void Allgatherv::pull_direct(int peer) {
  auto const bytes = recv_.bytes(peer);
  auto const address = card(peer).address;
  auto const* const here = comm_.shared.find(peer, address, bytes);
  comm_.mesh->fetch(engine(), peer, number, recv_.block(peer), address, here, bytes);
  comm_.stats.bytes_direct += bytes;
}

bool Allgatherv::submit() {
  if (!all_read()) return false;
  auto& mesh = *comm_.mesh;
  auto const mine = chunks_of(send_bytes_);

  readers_.clear();
  std::vector<int> direct_readers;
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = after(step);
    if (standing(peer) == Standing::mismatched) {
      mesh.count_push(engine(), peer, static_cast<std::uint32_t>(mine));
    } else if (standing(peer) == Standing::agreed) {
      auto const direct = engine().can_fetch() && goes_direct(terms(peer).flags, card(peer).flags, send_bytes_);
      (direct ? direct_readers : readers_).push_back(peer);
      if (direct) mesh.count_push(engine(), peer, 1);
    }
  }
  std::uint64_t rounds = readers_.empty() ? 0 : mine;
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = before(step);
    if (standing(peer) == Standing::agreed) rounds = std::max(rounds, chunks_of(recv_.bytes(peer)));
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto const place = mesh.place(number, 1, round);
    if (round < mine && !readers_.empty()) {
      auto const length = mesh.chunk_bytes(send_bytes_);
      auto const offset = round * length;
      auto const bytes = std::min(length, send_bytes_ - offset);
      engine().submit(Lane::up, CopyOp{mesh.begin_push(engine(), place), send_ + offset, bytes});
      mesh.end_push(engine(), place, readers_, bytes);
      comm_.stats.bytes_up += bytes;
      ++comm_.stats.chunks_up;
    }
    for (int step = 1; step < comm_.size; ++step) {
      int const peer = before(step);
      if (standing(peer) != Standing::agreed || round >= chunks_of(recv_.bytes(peer))) continue;
      if (engine().can_fetch() && goes_direct(card(peer).flags, terms(peer).flags, recv_.bytes(peer))) {
        if (round == 0) pull_direct(peer);
        continue;
      }
      auto const length = mesh.chunk_bytes(recv_.bytes(peer));
      auto const offset = round * length;
      auto const bytes = std::min(length, recv_.bytes(peer) - offset);
      auto const* const from = mesh.begin_pull(engine(), peer, place);
      engine().submit(Lane::down, CopyOp{recv_.block(peer) + offset, from, bytes});
      mesh.end_pull(engine(), peer);
      comm_.stats.bytes_down += bytes;
    }
  }
  auto* const own = recv_.block(comm_.rank);
  if (own != nullptr && own != send_) {
    engine().submit(Lane::down, CopyOp{own, send_, send_bytes_});
    comm_.stats.bytes_kept += send_bytes_;
  }
  for (int const peer : direct_readers) mesh.hold_for_credit(engine(), peer);
  engine().seal();
  return true;
}

}  // namespace davit::detail
