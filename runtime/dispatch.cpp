// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch.hpp"

#include <algorithm>

namespace davit::detail {
namespace {

// Above this the received rows do not stay in a core's caches until the experts read them.
constexpr std::size_t kStreamingBytes = std::size_t{4} << 20;

/// Group and routing in one word, so that a difference can be put into words.
std::uint64_t settings(RoutingState const& routing) {
  return std::uint64_t{routing.group->serial} << 32 | (routing.number & 0xffffffffU);
}

std::string settings_text(std::uint64_t word) {
  return "expert group " + std::to_string(word >> 32) + " routing " + std::to_string(word & 0xffffffffU);
}

/// All widths, on which chunks depend, in one word.
std::uint64_t hash_of(std::vector<RowPayload> const& payloads) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a over words
  for (auto const& payload : payloads) hash = (hash ^ payload.row_bytes) * 0x100000001b3U;
  return hash;
}

/// Number of payloads and their bytes in one word.
std::string payloads_text(std::uint64_t word) {
  return std::to_string(word & kMostPayloads) + " of " + std::to_string(word / (kMostPayloads + 1)) + " bytes in all";
}

}  // namespace

Dispatch::Dispatch(Side& side, std::shared_ptr<RoutingState> routing, std::shared_ptr<LayoutPlan const> plan,
                   std::vector<RowPayload> payloads, std::shared_ptr<void> rows)
    : Call(*routing->group->comm, side, Operation::dispatch, settings(*routing)),
      routing_owner_(std::move(routing)),
      plan_owner_(std::move(plan)),
      routing_(*routing_owner_),
      plan_(*plan_owner_),
      payloads_(std::move(payloads)) {
  keep(std::move(rows));
  for (auto const& payload : payloads_) row_bytes_ += payload.row_bytes;
  auto const slot = comm_.mesh->geometry().slot_bytes;
  auto const most = static_cast<std::uint64_t>(
      *std::max_element(routing_.upward_rows.begin(), routing_.upward_rows.end()));  // alike on all ranks
  if (row_bytes_ <= slot) {
    auto const chunk = std::max<std::uint64_t>(comm_.mesh->chunk_bytes(most * row_bytes_), row_bytes_);
    chunk_rows_ = static_cast<std::int64_t>(chunk / row_bytes_);
  } else {
    row_chunks_ = (row_bytes_ + slot - 1) / slot;
  }
}

Card Dispatch::terms(int peer) const {
  Card card{};
  card.sent = card.expected = hash_of(payloads_);
  card.address = payloads_.front().row_bytes;  // this and the note: for messages
  card.note = (row_bytes_ - payloads_.front().row_bytes) * (kMostPayloads + 1) + payloads_.size() - 1;
  auto const& needed = routing_.needed_by[static_cast<std::size_t>(peer)];
  std::int64_t last = -1;
  for (auto const position : needed) {
    if (position / chunk_rows_ == last) continue;
    last = position / chunk_rows_;
    card.chunks += static_cast<std::uint32_t>(row_chunks_);
  }
  return card;
}

std::string Dispatch::explain(std::uint64_t mine, std::uint64_t theirs) const {
  return settings_text(mine) + " against " + settings_text(theirs);
}

std::string Dispatch::disagreement(int from, Card const& sender, int to, Card const& receiver) const {
  auto const text = [&](std::string const& what, std::string const& first, std::string const& second) {
    return what + first + " on rank " + std::to_string(from) + " and " + second + " on rank " + std::to_string(to);
  };
  if (sender.address != receiver.address) {
    return text("row_bytes of x is ", std::to_string(sender.address), std::to_string(receiver.address));
  }
  return text("payloads differ in width: ", payloads_text(sender.note), payloads_text(receiver.note));
}

std::uint64_t Dispatch::chunks_of(int source) const noexcept {
  auto const rows = std::int64_t{routing_.upward_rows[static_cast<std::size_t>(source)]};
  return static_cast<std::uint64_t>((rows + chunk_rows_ - 1) / chunk_rows_) * row_chunks_;
}

Dispatch::Range Dispatch::positions(int source, std::uint64_t chunk) const noexcept {
  auto const first = static_cast<std::int64_t>(chunk / row_chunks_) * chunk_rows_;
  return {first, std::min<std::int64_t>(first + chunk_rows_, routing_.upward_rows[static_cast<std::size_t>(source)])};
}

Dispatch::Piece Dispatch::piece(std::uint64_t chunk) const noexcept {
  auto const slot = comm_.mesh->geometry().slot_bytes;
  auto const first = chunk % row_chunks_ * slot;
  return {first, std::min(row_bytes_, first + slot)};
}

std::size_t Dispatch::first_at(int source, std::int64_t position) const {
  auto const& received = *plan_.received;
  auto const begin = received.rows.begin() + received.source_first[static_cast<std::size_t>(source)];
  auto const end = received.rows.begin() + received.source_first[static_cast<std::size_t>(source) + 1];
  auto const found =
      std::lower_bound(begin, end, position, [](auto const& row, std::int64_t p) { return row.position < p; });
  return static_cast<std::size_t>(found - received.rows.begin());
}

template <class With>
void Dispatch::for_each_part(Piece const& piece, With with) const {
  std::size_t start = 0;  // of the payload in the row
  for (auto const& payload : payloads_) {
    auto const first = std::max(piece.first, start);
    auto const last = std::min(piece.last, start + payload.row_bytes);
    // A chunk holds its payloads one after the other, each as packed rows.
    if (first < last)
      with(payload, (first - piece.first) * static_cast<std::size_t>(chunk_rows_), first - start, last - first);
    start += payload.row_bytes;
  }
}

void Dispatch::pack(std::uint64_t chunk, std::byte* to) {
  auto const range = positions(comm_.rank, chunk);
  auto const count = static_cast<std::size_t>(range.last - range.first);
  auto const* const moves = routing_.upward_moves.data() + range.first;
  for_each_part(piece(chunk), [&](RowPayload const& payload, std::size_t offset, std::size_t byte, std::size_t bytes) {
    if (row_chunks_ == 1) {
      auto* const first = to + offset - static_cast<std::size_t>(range.first) * payload.row_bytes;
      engine().submit(Lane::up, MoveRowsOp{first, payload.from, payload.row_bytes, moves, count, host::Stores::cached});
    } else {
      auto const* const from = payload.from + static_cast<std::size_t>(moves->from) * payload.row_bytes + byte;
      engine().submit(Lane::up, CopyOp{to + offset, from, bytes});
    }
  });
}

/// Where a chunk holds the rows that any of these ranks needs.
std::vector<WireRange> Dispatch::needed_by(std::span<int const> ranks, Range const& range, Piece const& piece) const {
  std::vector<bool> needed(static_cast<std::size_t>(range.last - range.first));
  for (int const rank : ranks) {
    auto const& positions = routing_.needed_by[static_cast<std::size_t>(rank)];
    for (auto at = std::lower_bound(positions.begin(), positions.end(), range.first);
         at != positions.end() && *at < range.last; ++at) {
      needed[static_cast<std::size_t>(*at - range.first)] = true;
    }
  }
  std::vector<WireRange> ranges;
  for_each_part(piece, [&](RowPayload const&, std::size_t offset, std::size_t, std::size_t bytes) {
    for (std::size_t row = 0; row < needed.size(); ++row) {
      if (!needed[row]) continue;
      auto const at = offset + row * bytes;
      if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == at) {
        ranges.back().bytes += bytes;
      } else {
        ranges.push_back({at, bytes});
      }
    }
  });
  return ranges;
}

void Dispatch::push(std::uint64_t chunk) {
  auto& mesh = *comm_.mesh;
  auto const range = positions(comm_.rank, chunk);
  readers_.clear();
  for (int step = 1; step < comm_.size; ++step) {
    auto const& needed = routing_.needed_by[static_cast<std::size_t>(after(step))];
    auto const found = std::lower_bound(needed.begin(), needed.end(), range.first);
    if (found != needed.end() && *found < range.last) readers_.push_back(after(step));
  }
  bool const staged = is_staged(range);
  if (staged) {
    if (chunk == 0) pack(chunk, staging_.up(chunk));
    if (chunk + 1 < chunks_of(comm_.rank) && is_staged(positions(comm_.rank, chunk + 1))) {
      engine().begin_aside(Lane::up);  // while this one is copied
      pack(chunk + 1, staging_.up(chunk + 1));
      engine().end_aside(Lane::up);
    }
  }
  auto const place = mesh.place(number, 1, chunk);
  auto* const slot = mesh.begin_push(engine(), place);
  auto const count = static_cast<std::size_t>(range.last - range.first);
  if (!staged) pack(chunk, slot);
  for_each_part(piece(chunk), [&](RowPayload const&, std::size_t offset, std::size_t, std::size_t bytes) {
    if (staged) engine().submit(Lane::up, CopyOp{slot + offset, staging_.up(chunk) + offset, count * bytes});
    comm_.stats.bytes_up += count * bytes;
  });
  mesh.end_push(engine(), place, readers_,
                [&](std::span<int const> readers) { return needed_by(readers, range, piece(chunk)); });
  if (staged) engine().join_aside(Lane::up);
  ++comm_.stats.chunks_up;
  if (chunk % row_chunks_ == 0) comm_.stats.rows_up += count;
}

bool Dispatch::is_staged(Range const& range) const noexcept {
  return staging_.is_ready() && static_cast<std::size_t>(range.last - range.first) * row_bytes_ >= Staging::kLeastBytes;
}

host::Stores Dispatch::stores_of(RowPayload const& payload) const noexcept {
  return static_cast<std::size_t>(plan_.rows) * payload.row_bytes > kStreamingBytes ? host::Stores::streaming
                                                                                    : host::Stores::cached;
}

void Dispatch::pull(int source, std::uint64_t chunk) {
  auto& mesh = *comm_.mesh;
  auto const range = positions(source, chunk);
  auto const first = first_at(source, range.first);
  auto const last = first_at(source, range.last);
  if (first == last) return;
  auto const needed = last - first;
  auto const there = static_cast<std::size_t>(range.last - range.first);
  // The whole chunk comes down where at most an eighth of it is not needed here.
  auto* const staged = is_staged(range) && 8 * (there - needed) <= there ? staging_.next_down(engine()) : nullptr;
  auto const* const slot = mesh.begin_pull(engine(), source, mesh.place(number, 1, chunk));
  auto const* const moves = plan_.moves.data() + plan_.move_first[first];
  std::size_t const count = plan_.move_first[last] - plan_.move_first[first];
  auto const expand = [&](std::byte const* from, RowPayload const& payload) {
    from -= static_cast<std::size_t>(range.first) * payload.row_bytes;
    engine().submit(Lane::down, MoveRowsOp{payload.to, from, payload.row_bytes, moves, count, stores_of(payload)});
  };
  for_each_part(piece(chunk), [&](RowPayload const& payload, std::size_t offset, std::size_t byte, std::size_t bytes) {
    if (staged != nullptr) {
      engine().submit(Lane::down, CopyOp{staged + offset, slot + offset, there * bytes});
    } else if (row_chunks_ == 1) {
      expand(slot + offset, payload);
    } else {
      for (std::size_t move = 0; move < count; ++move) {
        auto* const to = payload.to + static_cast<std::size_t>(moves[move].to) * payload.row_bytes + byte;
        engine().submit(Lane::down, CopyOp{to, slot + offset, bytes});
      }
    }
    comm_.stats.bytes_down += needed * bytes;
  });
  mesh.end_pull(engine(), source);
  if (staged != nullptr) {
    engine().begin_aside(Lane::down);  // while the next one is copied
    for_each_part(piece(chunk), [&](RowPayload const& payload, std::size_t offset, std::size_t, std::size_t) {
      expand(staged + offset, payload);
    });
    engine().end_aside(Lane::down);
    comm_.stats.rows_slack += there - needed;
  }
  if (chunk % row_chunks_ == 0) comm_.stats.rows_down += needed;
}

void Dispatch::keep_own() {
  auto const me = static_cast<std::size_t>(comm_.rank);
  auto const first = plan_.received->source_first[me];
  auto const last = plan_.received->source_first[me + 1];
  auto const* const moves = plan_.moves.data() + plan_.move_first[first];
  std::size_t const count = plan_.move_first[last] - plan_.move_first[first];
  if (count == 0) return;
  bool const aside = count * row_bytes_ >= Staging::kLeastBytes;
  if (aside) engine().begin_aside(Lane::down);
  for (auto const& payload : payloads_) {
    engine().submit(Lane::down,
                    MoveRowsOp{payload.to, payload.from, payload.row_bytes, moves, count, stores_of(payload)});
    comm_.stats.bytes_kept += (last - first) * payload.row_bytes;
  }
  if (aside) engine().end_aside(Lane::down);
}

void Dispatch::zero_padding() {
  for (auto const& payload : payloads_) {
    for (auto const& run : plan_.padding) {
      engine().submit(Lane::down, ZeroOp{payload.to + static_cast<std::size_t>(run.from) * payload.row_bytes,
                                         static_cast<std::size_t>(run.to - run.from) * payload.row_bytes});
    }
  }
}

bool Dispatch::submit() {
  if (!all_read()) return false;
  if (!all_agreed()) {
    settle_all();
    engine().seal();
    return true;
  }
  std::uint64_t rounds = 0;
  for (int source = 0; source < comm_.size; ++source) rounds = std::max(rounds, chunks_of(source));
  if (rounds > 0 && is_on_device() && row_chunks_ == 1)
    staging_.prepare(side(), static_cast<std::size_t>(chunk_rows_) * row_bytes_);
  zero_padding();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (round < chunks_of(comm_.rank)) push(round);
    if (round == 0) keep_own();  // while the peers take the first chunk
    for (int step = 1; step < comm_.size; ++step) {
      if (round < chunks_of(before(step))) pull(before(step), round);
    }
  }
  if (rounds == 0) keep_own();
  engine().seal();
  return true;
}

void Dispatch::let_go() {
  routing_owner_.reset();
  plan_owner_.reset();
}

}  // namespace davit::detail
