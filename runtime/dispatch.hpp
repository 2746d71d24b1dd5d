// SPDX-License-Identifier: Apache-2.0
/// @file
/// dispatch, shared form: an upward row lies in its source's slots once, and every rank that needs it copies it from
/// there to each of its places. On a GPU long chunks pass through packed memory at both ends, where kernels gather and
/// spread rows beside the copies, so that only copy engines use the link; a chunk comes down whole where at most an
/// eighth of it is not needed, else a kernel takes what is needed from the slot.
#pragma once

#include <vector>

#include "runtime/routing_state.hpp"
#include "runtime/staging.hpp"

namespace davit::detail {

/// Most payloads beside x; one less than a power of two.
inline constexpr std::size_t kMostPayloads = 7;

/// One row array of a dispatch.
struct RowPayload {
  std::byte const* from;  ///< [T, row_bytes]
  std::byte* to;          ///< [rows of the layout, row_bytes]
  std::size_t row_bytes;
};

class Dispatch final : public Call {
 public:
  Dispatch(Side& side, std::shared_ptr<RoutingState> routing, std::shared_ptr<LayoutPlan const> plan,
           std::vector<RowPayload> payloads, std::shared_ptr<void> rows);

 private:
  [[nodiscard]] Card terms(int peer) const override;
  [[nodiscard]] std::string explain(std::uint64_t mine, std::uint64_t theirs) const override;
  [[nodiscard]] std::string disagreement(int from, Card const& sender, int to, Card const& receiver) const override;
  bool submit() override;
  void let_go() override;

  void pack(std::uint64_t chunk, std::byte* to);
  void push(std::uint64_t chunk);
  void pull(int source, std::uint64_t chunk);
  void keep_own();
  void zero_padding();
  [[nodiscard]] host::Stores stores_of(RowPayload const& payload) const noexcept;

  /// Received rows of a source whose position is below `position`: index of the first that is not.
  [[nodiscard]] std::size_t first_at(int source, std::int64_t position) const;
  [[nodiscard]] std::uint64_t chunks_of(int source) const noexcept;
  /// Positions of a chunk: [first, last).
  struct Range {
    std::int64_t first;
    std::int64_t last;
  };
  [[nodiscard]] Range positions(int source, std::uint64_t chunk) const noexcept;
  /// Whether a chunk passes through packed memory of the GPU.
  [[nodiscard]] bool is_staged(Range const& range) const noexcept;
  /// Bytes of a row, over all payloads laid end to end, that a chunk brings.
  struct Piece {
    std::size_t first;
    std::size_t last;
  };
  [[nodiscard]] Piece piece(std::uint64_t chunk) const noexcept;
  [[nodiscard]] std::vector<WireRange> needed_by(std::span<int const> ranks, Range const& range,
                                                 Piece const& piece) const;
  /// Calls `with(payload, offset in the slot, first byte in its row, bytes)` for each payload that a piece meets.
  template <class With>
  void for_each_part(Piece const& piece, With with) const;

  std::shared_ptr<RoutingState> routing_owner_;  ///< on a stream the caller may drop both before it has run
  std::shared_ptr<LayoutPlan const> plan_owner_;
  RoutingState& routing_;
  LayoutPlan const& plan_;
  std::vector<RowPayload> payloads_;
  std::size_t row_bytes_ = 0;     ///< of all payloads
  std::int64_t chunk_rows_ = 1;   ///< rows of a chunk; 1 where a row fills several chunks
  std::uint64_t row_chunks_ = 1;  ///< chunks of a row
  std::vector<int> readers_;
  Staging staging_;
};

}  // namespace davit::detail
