// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Routing holds: from all ranks' published choices each rank derives the same rows, chunks, readers and places.
///
/// Words used here: a token's *upward row* exists if another rank needs the token; upward rows of a source are numbered
/// in token order (*position*). A *received row* is a (source, token) that has an expert here. A *hit* is a (received
/// row, used k) whose expert is here.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "davit/expert_group.hpp"
#include "runtime/call.hpp"
#include "runtime/group_state.hpp"

namespace davit::detail {

/// What this rank receives, whatever the layout.
struct ReceivedRows {
  struct Row {
    std::int32_t token;
    std::int32_t position;  ///< among its source's upward rows; the token itself for rows this rank keeps
  };
  struct Hit {
    std::int32_t expert;  ///< local
    std::int32_t k;
    float weight;
  };
  std::vector<Row> rows;                    ///< ordered (source, token)
  std::vector<std::uint32_t> source_first;  ///< [R + 1] first row of each source
  std::vector<Hit> hits;                    ///< of the rows, k rising
  std::vector<std::uint32_t> hit_first;     ///< [rows + 1] first hit of each row
};

/// One receive layout of a routing. Immutable once made; Received shares it.
struct LayoutPlan {
  LayoutPlan(GroupState const& group, std::shared_ptr<ReceivedRows const> received, Layout layout,
             std::int64_t alignment, bool global_ids);

  Layout const layout;
  std::int64_t const alignment;
  bool const global_ids;
  std::shared_ptr<ReceivedRows const> const received;
  std::int64_t rows = 0;
  std::vector<std::int64_t> counts, expert_counts, padded_counts, expert_offsets, source_counts;
  std::vector<host::RowMove> moves;       ///< position to row: one a hit, by_source one a received row
  std::vector<std::uint32_t> move_first;  ///< [received rows + 1]
  std::vector<RowTerm> terms;             ///< one a move: the row of the layout, the hit's weight
  std::vector<host::RowMove> padding;     ///< runs of padding rows: from (first row), to (one past the last)

  /// Made at first use, since many callers never look.
  struct Choices {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
  };
  [[nodiscard]] Choices const& choices() const;
  [[nodiscard]] ReceivedCounts view() const noexcept;

 private:
  void place(GroupState const& group);
  std::int64_t const top_k_;
  std::int64_t const first_expert_;
  mutable std::once_flag once_;
  mutable Choices choices_;
};

/// How the owner of tokens adds what came back, for one block size of combine.
struct OwnerPlan {
  std::int64_t block_tokens;
  bool by_k;
  std::vector<RowTerm> terms;        ///< base is a rank, row counts from the block's first
  std::vector<std::uint32_t> first;  ///< [T + 1]
};

class RoutingState {
 public:
  /// Reads the areas of all ranks, which have agreed. @throws PeerError if one holds what cannot be.
  RoutingState(std::shared_ptr<GroupState> group, std::uint64_t number);
  /// Lets go of the area: local.
  ~RoutingState();
  RoutingState(RoutingState const&) = delete;
  RoutingState& operator=(RoutingState const&) = delete;

  [[nodiscard]] std::shared_ptr<LayoutPlan const> plan(Layout layout, std::int64_t alignment, bool global_ids);
  [[nodiscard]] OwnerPlan const& owner_plan(std::int64_t block_tokens, bool by_k);

  std::shared_ptr<GroupState> const group;
  std::uint64_t const number;
  std::int64_t tokens = 0;                           ///< of this rank
  std::vector<std::int64_t> tokens_of;               ///< [R]
  std::vector<std::int32_t> upward_rows;             ///< [R] of each source
  std::vector<host::RowMove> upward_moves;           ///< of this rank: token to position
  std::vector<std::vector<std::int32_t>> needed_by;  ///< [R] positions of this rank's upward rows that a rank needs
  std::shared_ptr<ReceivedRows const> received;
  std::optional<Layout> last_layout;
  std::int64_t last_alignment = 1;

 private:
  void read_source(int source, ReceivedRows& into);
  std::vector<std::shared_ptr<LayoutPlan const>> plans_;
  std::optional<OwnerPlan> owner_plan_;
};

/// Canonical choices of one rank, checked. @throws UsageError naming row and value.
struct Choices {
  std::int64_t tokens = 0;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
template <class Id>
[[nodiscard]] Choices canonical_choices(ExpertGroupOptions const& options, std::span<Id const> ids,
                                        std::span<float const> weights);

/// Publishes this rank's choices and reads the other ranks' cards.
class Route final : public Call {
 public:
  Route(GroupState& group, Choices const& choices);

 private:
  [[nodiscard]] Card terms(int) const override { return {}; }
  [[nodiscard]] std::string explain(std::uint64_t mine, std::uint64_t theirs) const override;
  bool open() override;
  void awaited_to_open(std::vector<int>& peers) const override;
  bool submit() override { return true; }
  [[nodiscard]] bool area_is_free(int peer) const noexcept;

  GroupState& group_;
  Choices const& choices_;
};

}  // namespace davit::detail
