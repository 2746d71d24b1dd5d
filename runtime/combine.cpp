// SPDX-License-Identifier: Apache-2.0
#include "runtime/combine.hpp"

#include <algorithm>
#include <numeric>

#include "davit/error.hpp"

namespace davit::detail {
namespace {

/// Routing, kind of sum and who weights, in one word, so that a difference can be put into words.
std::uint64_t settings(RoutingState const& routing, CombineArguments const& arguments) {
  return std::uint64_t{routing.group->serial} << 34 | (routing.number & 0xffffffffU) << 2 |
         std::uint64_t{arguments.by_k} << 1 | std::uint64_t{arguments.weighted};
}

std::string settings_text(std::uint64_t word) {
  return "expert group " + std::to_string(word >> 34) + " routing " + std::to_string(word >> 2 & 0xffffffffU) +
         ", reduce " + ((word & 2) != 0 ? "by_k" : "grouped") + ", weighting " +
         ((word & 1) != 0 ? "at_combine" : "by_caller");
}

}  // namespace

Combine::Combine(Side& side, std::shared_ptr<RoutingState> routing, std::shared_ptr<LayoutPlan const> plan,
                 CombineArguments const& arguments)
    : Call(*routing->group->comm, side, Operation::combine, settings(*routing, arguments)),
      routing_owner_(std::move(routing)),
      plan_owner_(std::move(plan)),
      routing_(*routing_owner_),
      plan_(*plan_owner_),
      arguments_(arguments),
      row_dtype_(arguments.by_k ? routing_.group->options.dtype : routing_.group->partial_dtype) {
  auto const& options = routing_.group->options;
  if (arguments.by_k) rows_a_token_ = std::min(options.top_k, routing_.group->experts_of(0));
  auto const element = size_of(row_dtype_);
  auto const most = static_cast<std::uint64_t>(*std::max_element(routing_.tokens_of.begin(), routing_.tokens_of.end()));
  // Of what one rank may send to all: alike on all ranks.
  auto const slot = comm_.mesh->chunk_bytes(most * static_cast<std::uint64_t>(options.hidden) * element *
                                            static_cast<std::uint64_t>(std::max(comm_.size - 1, 1)));
  auto const hidden = static_cast<std::size_t>(options.hidden);
  // So short that the rows of all owners fit, whatever the choices: both ends know the place of each without asking.
  auto const owners = static_cast<std::size_t>(std::max(comm_.size - 1, 1)) * static_cast<std::size_t>(rows_a_token_);
  if (owners * hidden * element <= slot) {
    block_tokens_ = static_cast<std::int64_t>(slot / (owners * hidden * element));
    piece_columns_ = hidden;
  } else {
    auto const row = slot / owners;
    piece_columns_ = (row >= 64 ? row / 64 * 64 : row) / element;
    if (piece_columns_ == 0) {
      throw UsageError("davit: combine: slot_bytes is " + std::to_string(comm_.mesh->geometry().slot_bytes) +
                       ", must be at least " + std::to_string(owners * element) + " for these ranks and this top_k");
    }
    pieces_ = (hidden + piece_columns_ - 1) / piece_columns_;
  }
  owner_plan_ = &routing_.owner_plan(block_tokens_, arguments.by_k);
}

std::string Combine::explain(std::uint64_t mine, std::uint64_t theirs) const {
  return settings_text(mine) + " against " + settings_text(theirs);
}

Card Combine::terms(int peer) const {
  Card card{};
  auto const& received = *plan_.received;
  std::int64_t last = -1;
  for (auto row = received.source_first[static_cast<std::size_t>(peer)];
       row < received.source_first[static_cast<std::size_t>(peer) + 1]; ++row) {
    auto const block = received.rows[row].token / block_tokens_;
    if (block == last) continue;
    last = block;
    card.chunks += static_cast<std::uint32_t>(pieces_);
  }
  return card;
}

Combine::Round Combine::round_of(std::uint64_t round) const noexcept {
  auto const first = static_cast<std::int64_t>(round / pieces_) * block_tokens_;
  auto const column = round % pieces_ * piece_columns_;
  auto const hidden = static_cast<std::size_t>(routing_.group->options.hidden);
  return {first, first + block_tokens_, column, std::min(piece_columns_, hidden - column),
          piece_columns_ * size_of(row_dtype_)};
}

std::size_t Combine::section_bytes(Round const& round) const noexcept {
  return static_cast<std::size_t>(block_tokens_ * rows_a_token_) * round.stride;
}

Combine::Rows Combine::received_in(int source, Round const& round) const {
  auto const& received = *plan_.received;
  auto const begin = received.rows.begin() + received.source_first[static_cast<std::size_t>(source)];
  auto const end = received.rows.begin() + received.source_first[static_cast<std::size_t>(source) + 1];
  auto const at = [&](std::int64_t token) {
    auto const found =
        std::lower_bound(begin, end, token, [](auto const& row, std::int64_t t) { return row.token < t; });
    return static_cast<std::size_t>(found - received.rows.begin());
  };
  return {at(round.first_token), at(round.last_token)};
}

std::size_t Combine::rows_sent(Rows const& rows) const {
  return arguments_.by_k ? plan_.move_first[rows.last] - plan_.move_first[rows.first] : rows.last - rows.first;
}

bool Combine::has_terms_from(int rank, Round const& round) const {
  auto const& blocks = sends_[static_cast<std::size_t>(rank)];
  auto const block = static_cast<std::size_t>(round.first_token / block_tokens_);
  return block < blocks.size() && blocks[block] != 0;
}

void Combine::submit_own_sums(Lane lane, Round const& round, Rows const& rows, std::byte* out) {
  auto const dtype = routing_.group->options.dtype;
  auto const* const first =
      arguments_.by_k ? one_each_.data() + plan_.move_first[rows.first] : plan_.move_first.data() + rows.first;
  auto const count = rows_sent(rows);
  host::RowSum const types{dtype, row_dtype_, row_dtype_, arguments_.weighted && !arguments_.by_k, false};
  auto const* const base = &bases_[bases_.size() - pieces_ + round.first_column / piece_columns_];
  engine().submit(lane,
                  SumRowsOp{types, base, plan_.terms.data(), first, count, round.columns, out, round.stride, nullptr});
}

/// What this rank's experts made of a round's tokens, owner by owner.
void Combine::sum_for_owners(std::uint64_t index, std::byte* to) {
  auto const round = round_of(index);
  for (int step = 1; step < comm_.size; ++step) {
    auto const rows = received_in(after(step), round);
    if (rows.first == rows.last) continue;
    submit_own_sums(Lane::up, round, rows, to + static_cast<std::size_t>(step - 1) * section_bytes(round));
  }
}

/// Where a chunk holds what these owners need.
std::vector<WireRange> Combine::sections(Round const& round, std::span<int const> owners) const {
  std::vector<WireRange> ranges;
  for (int step = 1; step < comm_.size; ++step) {
    if (std::ranges::find(owners, after(step)) == owners.end()) continue;
    auto const rows = received_in(after(step), round);
    ranges.push_back({static_cast<std::uint64_t>(step - 1) * section_bytes(round), rows_sent(rows) * round.stride});
  }
  return ranges;
}

void Combine::push(std::uint64_t index) {
  auto& mesh = *comm_.mesh;
  auto const round = round_of(index);
  readers_.clear();
  for (int step = 1; step < comm_.size; ++step) {
    auto const rows = received_in(after(step), round);
    if (rows.first < rows.last) readers_.push_back(after(step));
  }
  bool const staged = staging_.is_ready();
  if (staged) {
    if (index == 0) sum_for_owners(index, staging_.up(index));
    if (index + 1 < rounds_) {
      engine().begin_aside(Lane::up);  // while this one is copied
      sum_for_owners(index + 1, staging_.up(index + 1));
      engine().end_aside(Lane::up);
    }
  }
  if (!readers_.empty()) {
    auto const place = mesh.place(number, 1, index);
    auto* const slot = mesh.begin_push(engine(), place);
    if (!staged) sum_for_owners(index, slot);
    for (int step = 1; step < comm_.size; ++step) {
      auto const rows = received_in(after(step), round);
      if (rows.first == rows.last) continue;
      auto const at = static_cast<std::size_t>(step - 1) * section_bytes(round);
      auto const count = rows_sent(rows);
      if (staged) engine().submit(Lane::up, CopyOp{slot + at, staging_.up(index) + at, count * round.stride});
      comm_.stats.bytes_up += count * round.columns * size_of(row_dtype_);
      if (round.first_column == 0) comm_.stats.rows_up += count;
    }
    mesh.end_push(engine(), place, readers_, [&](std::span<int const> readers) { return sections(round, readers); });
    ++comm_.stats.chunks_up;
  }
  if (staged) engine().join_aside(Lane::up);
}

void Combine::pull(std::uint64_t index) {
  auto& mesh = *comm_.mesh;
  auto const round = round_of(index);
  auto const last_token = std::min(round.last_token, routing_.tokens);
  if (round.first_token >= last_token) return;
  auto const me = static_cast<std::size_t>(comm_.rank);
  auto const place = mesh.place(number, 1, index);
  auto* const bases = bases_.data() + index * static_cast<std::uint64_t>(comm_.size);
  auto const& first = owner_plan_->first;
  auto const first_term = first[static_cast<std::size_t>(round.first_token)];
  auto const last_term = first[static_cast<std::size_t>(last_token)];
  rows_from_.assign(static_cast<std::size_t>(comm_.size), 0);
  for (auto term = first_term; term < last_term; ++term) ++rows_from_[owner_plan_->terms[term].base];
  auto* const staged = staging_.is_ready() ? staging_.next_down(engine()) : nullptr;
  for (int step = 1; step < comm_.size; ++step) {
    int const peer = before(step);
    if (!has_terms_from(peer, round)) continue;
    auto const at = static_cast<std::size_t>(step - 1) * section_bytes(round);
    auto const* const slot = mesh.begin_pull(engine(), peer, place);
    bases[peer] = {(staged == nullptr ? slot : staged) + at, round.stride};
    auto const bytes = rows_from_[static_cast<std::size_t>(peer)] * round.stride;
    if (staged != nullptr) engine().submit(Lane::down, CopyOp{staged + at, slot + at, bytes});
  }
  auto const credit = [&] {
    for (int step = 1; step < comm_.size; ++step) {
      if (has_terms_from(before(step), round)) mesh.end_pull(engine(), before(step));
    }
  };
  if (staged != nullptr) {
    credit();                          // the copies are all that reads the slots
    engine().begin_aside(Lane::down);  // while the next ones are copied
  }
  if (arguments_.by_k) {
    bases[me] = bases_[bases_.size() - pieces_ + round.first_column / piece_columns_];
  } else {
    bases[me] = {scratch_, round.stride};
    auto const rows = received_in(comm_.rank, round);
    if (rows.first < rows.last) submit_own_sums(Lane::down, round, rows, scratch_);
  }
  host::RowSum const types{row_dtype_, row_dtype_, arguments_.out_dtype, arguments_.by_k && arguments_.weighted,
                           !arguments_.by_k};
  auto const stride = static_cast<std::size_t>(routing_.group->options.hidden) * size_of(arguments_.out_dtype);
  auto const at =
      static_cast<std::size_t>(round.first_token) * stride + round.first_column * size_of(arguments_.out_dtype);
  auto const* const terms = arguments_.by_k ? own_terms_.data() : owner_plan_->terms.data();
  engine().submit(Lane::down,
                  SumRowsOp{types, bases, terms, owner_plan_->first.data() + round.first_token,
                            static_cast<std::size_t>(last_token - round.first_token), round.columns,
                            arguments_.out + at, stride, arguments_.bias == nullptr ? nullptr : arguments_.bias + at});
  if (staged == nullptr) {
    credit();
  } else {
    engine().end_aside(Lane::down);
  }
  for (int rank = 0; rank < comm_.size; ++rank) {
    auto const rows = rank == comm_.rank ? 0 : rows_from_[static_cast<std::size_t>(rank)];
    comm_.stats.bytes_down += rows * round.columns * size_of(row_dtype_);
    if (round.first_column == 0) comm_.stats.rows_down += rows;
  }
}

bool Combine::submit() {
  if (!all_read()) return false;
  if (!all_agreed()) {
    settle_all();
    engine().seal();
    return true;
  }
  auto const blocks_of = [&](std::int64_t tokens) {
    return static_cast<std::uint64_t>((tokens + block_tokens_ - 1) / block_tokens_);
  };
  auto const& tokens = routing_.tokens_of;
  rounds_ = blocks_of(*std::max_element(tokens.begin(), tokens.end())) * pieces_;
  sends_.assign(tokens.size(), std::vector<std::uint8_t>(blocks_of(routing_.tokens)));
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    for (auto const position : routing_.needed_by[rank]) {
      auto const token = routing_.upward_moves[static_cast<std::size_t>(position)].from;
      sends_[rank][static_cast<std::size_t>(token / block_tokens_)] = 1;
    }
  }
  auto const& options = routing_.group->options;
  bases_.resize(rounds_ * static_cast<std::uint64_t>(comm_.size) + pieces_);
  for (std::uint64_t piece = 0; piece < pieces_; ++piece) {
    bases_[bases_.size() - pieces_ + piece] = {arguments_.rows + piece * piece_columns_ * size_of(options.dtype),
                                               static_cast<std::size_t>(options.hidden) * size_of(options.dtype)};
  }
  if (arguments_.by_k) {
    one_each_.resize(plan_.terms.size() + 1);
    std::iota(one_each_.begin(), one_each_.end(), 0U);
    own_terms_ = owner_plan_->terms;
    auto const own_first = plan_.move_first[plan_.received->source_first[static_cast<std::size_t>(comm_.rank)]];
    for (auto& term : own_terms_) {
      if (term.base == static_cast<std::uint32_t>(comm_.rank)) term.row = plan_.terms[own_first + term.row].row;
    }
  } else {
    scratch_owner_ =
        side().pool()->take(static_cast<std::size_t>(std::min(block_tokens_, routing_.tokens)) * round_of(0).stride);
    scratch_ = static_cast<std::byte*>(scratch_owner_.get());
  }
  auto const chunk = static_cast<std::size_t>(comm_.size - 1) * section_bytes(round_of(0));
  if (rounds_ > 0 && is_on_device() && chunk >= Staging::kLeastBytes) staging_.prepare(side(), chunk);
  for (std::uint64_t round = 0; round < rounds_; ++round) {
    push(round);
    pull(round);
  }
  engine().seal();
  return true;
}

void Combine::let_go() {
  routing_owner_.reset();
  plan_owner_.reset();
}

}  // namespace davit::detail
