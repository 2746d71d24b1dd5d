// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/shared_exchanges.hpp"

namespace davit::detail {

ReduceScatterv::ReduceScatterv(CommunicatorState& comm, Side& side, std::byte const* send, std::byte* recv,
                               Counts counts, Dtype dtype)
    : Call(comm, side, Operation::reduce_scatterv, static_cast<std::uint64_t>(dtype)),
      send_(send),
      recv_(recv),
      counts_(counts.begin(), counts.end()),
      dtype_(dtype) {}

std::string ReduceScatterv::explain(std::uint64_t mine, std::uint64_t theirs) const {
  return std::string("dtype ") + name_of(static_cast<Dtype>(mine)) + " and " + name_of(static_cast<Dtype>(theirs));
}

std::uint64_t ReduceScatterv::bytes_of(int owner) const noexcept {
  return static_cast<std::uint64_t>(counts_[static_cast<std::size_t>(owner)]) * size_of(dtype_);
}

/// A slot holds as many parts as there are other ranks, on whole cache lines.
std::uint64_t ReduceScatterv::part_bytes() const noexcept {
  auto const others = std::max<std::uint64_t>(static_cast<std::uint64_t>(comm_.size) - 1, 1);
  return std::max<std::uint64_t>(comm_.mesh->geometry().slot_bytes / others / 64 * 64, 64);
}

Card ReduceScatterv::terms(int peer) const {
  Card card{};
  card.sent = bytes_of(peer);
  card.expected = bytes_of(comm_.rank);
  card.note = note_of(dtype_, dtype_);
  card.chunks = static_cast<std::uint32_t>((card.sent + part_bytes() - 1) / part_bytes());
  return card;
}

bool ReduceScatterv::open() {
  offsets_.resize(static_cast<std::size_t>(comm_.size));
  std::uint64_t offset = 0;
  for (int owner = 0; owner < comm_.size; ++owner) {
    offsets_[static_cast<std::size_t>(owner)] = offset;
    offset += bytes_of(owner);
  }
  if (send_ == recv_) result_ = side().pool()->take(bytes_of(comm_.rank));
  return true;
}

void ReduceScatterv::push_round(std::uint64_t round) {
  auto& mesh = *comm_.mesh;
  auto const part = part_bytes();
  readers_.clear();
  for (int step = 1; step < comm_.size; ++step) {
    if (bytes_of(after(step)) > round * part && standing(after(step)) == Standing::agreed)
      readers_.push_back(after(step));
  }
  if (readers_.empty()) return;
  auto const place = mesh.place(number, 1, round);
  auto* const slot = mesh.begin_push(engine(), place);
  for (int step = 1; step < comm_.size; ++step) {
    int const owner = after(step);
    if (bytes_of(owner) <= round * part || standing(owner) != Standing::agreed) continue;
    auto const bytes = std::min(part, bytes_of(owner) - round * part);
    auto const* const from = send_ + offsets_[static_cast<std::size_t>(owner)] + round * part;
    engine().submit(Lane::up, CopyOp{slot + static_cast<std::uint64_t>(step - 1) * part, from, bytes});
    comm_.stats.bytes_up += bytes;
  }
  mesh.end_push(engine(), place, readers_, [&](std::span<int const> readers) {
    std::vector<WireRange> ranges;
    for (int step = 1; step < comm_.size; ++step) {
      int const owner = after(step);
      if (std::ranges::find(readers, owner) == readers.end()) continue;
      ranges.push_back({static_cast<std::uint64_t>(step - 1) * part, std::min(part, bytes_of(owner) - round * part)});
    }
    return ranges;
  });
  ++comm_.stats.chunks_up;
}

void ReduceScatterv::pull_round(std::uint64_t round) {
  auto& mesh = *comm_.mesh;
  auto const part = part_bytes();
  auto const mine = bytes_of(comm_.rank);
  if (mine <= round * part) return;
  auto const bytes = std::min(part, mine - round * part);
  auto const place = mesh.place(number, 1, round);
  auto* const bases = bases_.data() + round * static_cast<std::uint64_t>(comm_.size);
  bases[comm_.rank] = {send_ + offsets_[static_cast<std::size_t>(comm_.rank)] + round * part, 0};
  auto* const staged = staging_.is_ready() ? staging_.next_down(engine()) : nullptr;
  for (int step = 1; step < comm_.size; ++step) {
    // The writer before(step) is `step` behind, so this rank's part is its (step - 1)th.
    auto const at = static_cast<std::uint64_t>(step - 1) * part;
    auto const* const slot = mesh.begin_pull(engine(), before(step), place);
    bases[before(step)] = {(staged == nullptr ? slot : staged) + at, 0};
    if (staged != nullptr) engine().submit(Lane::down, CopyOp{staged + at, slot + at, bytes});
    comm_.stats.bytes_down += bytes;
  }
  auto const credit = [&] {
    for (int step = 1; step < comm_.size; ++step) mesh.end_pull(engine(), before(step));
  };
  if (staged != nullptr) credit();  // the copies are all that reads the slots
  host::RowSum const types{dtype_, dtype_, dtype_, false, false};
  auto* const out = (result_ == nullptr ? recv_ : static_cast<std::byte*>(result_.get())) + round * part;
  if (staged != nullptr) engine().begin_aside(Lane::down);
  engine().submit(Lane::down,
                  SumRowsOp{types, bases, terms_.data(), first_.data(), 1, bytes / size_of(dtype_), out, 0, nullptr});
  if (staged != nullptr) engine().end_aside(Lane::down);
  if (staged == nullptr) credit();
}

bool ReduceScatterv::submit() {
  if (!all_read()) return false;
  if (any_refused()) {  // void on all ranks
    settle_all();
    engine().seal();
    return true;
  }
  // A mismatch concerns its pair: what this rank owes to ranks that agree with it goes out all the same, or their sums
  // would be wrong in silence. It has no sum of its own.
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = after(step);
    if (standing(peer) == Standing::mismatched) {
      comm_.mesh->count_push(engine(), peer, terms(peer).chunks);
    } else if (!all_agreed()) {
      comm_.mesh->drop(peer, card(peer));
    }
  }
  auto const part = part_bytes();
  std::uint64_t rounds = 0;
  for (int owner = 0; owner < comm_.size; ++owner) rounds = std::max(rounds, (bytes_of(owner) + part - 1) / part);
  for (int rank = 0; rank < comm_.size; ++rank) terms_.push_back({static_cast<std::uint32_t>(rank), 0, 1.0F, 0});
  first_ = {0, static_cast<std::uint32_t>(comm_.size)};
  bases_.resize(rounds * static_cast<std::uint64_t>(comm_.size));
  auto const longest = std::min(part, bytes_of(comm_.rank));
  if (comm_.size > 1 && is_on_device() && longest >= Staging::kLeastBytes) {
    staging_.prepare(side(), static_cast<std::size_t>(comm_.size - 2) * part + longest);
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    push_round(round);
    if (all_agreed()) pull_round(round);
  }
  if (result_ != nullptr && all_agreed()) {
    side().fence(Lane::up, Lane::down, comm_.rank);  // all of the input was read
    engine().join_aside(Lane::down);
    engine().submit(Lane::down, CopyOp{recv_, static_cast<std::byte*>(result_.get()), bytes_of(comm_.rank)});
  }
  engine().seal();
  return true;
}

}  // namespace davit::detail
