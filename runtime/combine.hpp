// SPDX-License-Identifier: Apache-2.0
/// @file
/// combine. Owners' tokens are cut into blocks alike on all ranks. Chunk c of a rank holds, owner by owner, what its
/// experts made of block c of the owner's tokens: one partial row a token, or with by_k one row a hit. An owner waits
/// for all ranks that have such rows, adds them rank rising with its own, and credits them all. A row too long for a
/// slot is cut by columns.
#pragma once

#include <vector>

#include "runtime/routing_state.hpp"
#include "runtime/staging.hpp"

namespace davit::detail {

/// Checked arguments of a combine.
struct CombineArguments {
  std::byte const* rows;  ///< [rows of the layout, H] of the group's dtype
  std::byte* out;         ///< [T, H] of `out_dtype`
  std::byte const* bias;  ///< as out, or null
  Dtype out_dtype;
  bool weighted;
  bool by_k;
};

class Combine final : public Call {
 public:
  /// @throws UsageError if a slot cannot hold one element of each owner's rows.
  Combine(Side& side, std::shared_ptr<RoutingState> routing, std::shared_ptr<LayoutPlan const> plan,
          CombineArguments const& arguments);

 private:
  [[nodiscard]] Card terms(int peer) const override;
  [[nodiscard]] std::string explain(std::uint64_t mine, std::uint64_t theirs) const override;
  bool submit() override;
  void let_go() override;

  /// A round: one block of tokens, one piece of the columns.
  struct Round {
    std::int64_t first_token;
    std::int64_t last_token;
    std::size_t first_column;
    std::size_t columns;
    std::size_t stride;  ///< bytes of a row in a slot
  };
  [[nodiscard]] Round round_of(std::uint64_t round) const noexcept;
  void sum_for_owners(std::uint64_t index, std::byte* to);
  void push(std::uint64_t index);
  void pull(std::uint64_t index);
  /// Received rows from `source` in a block: indexes [first, last).
  struct Rows {
    std::size_t first;
    std::size_t last;
  };
  [[nodiscard]] Rows received_in(int source, Round const& round) const;
  /// Rows that go up for these received ones.
  [[nodiscard]] std::size_t rows_sent(Rows const& rows) const;
  [[nodiscard]] std::vector<WireRange> sections(Round const& round, std::span<int const> owners) const;
  [[nodiscard]] bool has_terms_from(int rank, Round const& round) const;
  /// Sums (or with by_k copies) the rows of a block for one owner to `out`.
  void submit_own_sums(Lane lane, Round const& round, Rows const& rows, std::byte* out);
  [[nodiscard]] std::size_t section_bytes(Round const& round) const noexcept;

  std::shared_ptr<RoutingState> routing_owner_;  ///< on a stream the caller may drop both before it has run
  std::shared_ptr<LayoutPlan const> plan_owner_;
  RoutingState& routing_;
  LayoutPlan const& plan_;
  CombineArguments arguments_;
  Dtype row_dtype_;                ///< of rows in slots
  std::int64_t rows_a_token_ = 1;  ///< most rows of a token in one chunk
  std::int64_t block_tokens_ = 1;
  std::size_t piece_columns_ = 0;
  std::uint64_t pieces_ = 1;
  std::uint64_t rounds_ = 0;
  OwnerPlan const* owner_plan_ = nullptr;
  std::vector<RowTerm> own_terms_;       ///< by_k: the owner's terms, this rank's own rows where they lie
  std::vector<std::uint32_t> one_each_;  ///< by_k: 0, 1, 2, ...
  std::vector<RowBase> bases_;           ///< `size` a round, and one for the expert rows of each piece
  Staging staging_;                      ///< on a GPU
  std::shared_ptr<void> scratch_owner_;
  std::byte* scratch_ = nullptr;                  ///< this rank's partial rows of its own tokens, one block
  std::vector<std::uint32_t> rows_from_;          ///< [R] of a round
  std::vector<std::vector<std::uint8_t>> sends_;  ///< [R][blocks] whether this rank's tokens of a block have rows there
  std::vector<int> readers_;
};

}  // namespace davit::detail
