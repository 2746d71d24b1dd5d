// SPDX-License-Identifier: Apache-2.0
/// @file
/// An MoE exchange over MPI_Alltoallv, done well: what a program without davit would do. One row a (token, rank) is
/// packed, exchanged and expanded to the experts; partial sums of a rank's experts come back, one row a (token, rank).
/// Lists and buffers are made in route; rows are moved and added by the row kernels that davit itself has.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "davit/dtype.hpp"
#include "examples/support/buffer.hpp"
#include "examples/support/expert_map.hpp"
#include "transports/host/kernels.hpp"

namespace support {

/// MPI_Alltoallv counted in rows of a fixed length, so that the bytes may be more than an int holds.
class MpiRows {
 public:
  /// Rows of each rank, and where they begin, in rows.
  struct Blocks {
    std::vector<int> counts;
    std::vector<int> places;
  };

  MpiRows(std::size_t row_bytes, MPI_Comm comm);
  MpiRows(MpiRows const&) = delete;
  MpiRows& operator=(MpiRows const&) = delete;
  ~MpiRows();
  void alltoallv(std::byte const* send, Blocks const& sent, std::byte* recv, Blocks const& taken) const;

 private:
  MPI_Comm comm_;
  MPI_Datatype type_{};
};

/// How rows are moved into a buffer of `bytes`: past the caches where they would not stay there, as davit does.
[[nodiscard]] davit::host::Stores stores_for(std::size_t bytes) noexcept;

/// Pairs (token, rank) have numbers: those sent by (rank, token), those taken by (source, token). The rank's own pairs
/// have numbers too, but their rows never move: they are read where they lie.
class MpiMoe {
 public:
  struct Shape {
    std::int64_t experts;
    std::int64_t top_k;
    std::int64_t hidden;
    davit::Dtype dtype;  ///< of rows, partial sums and results
  };

  MpiMoe(Shape const& shape, MPI_Comm comm);

  // Collective. `ids` [T, K] holds experts, distinct in a token; it and `weights` [T, K] may go after route.
  void route(std::span<std::int32_t const> ids, std::span<float const> weights);
  void dispatch(std::byte const* x);  ///< x [T, H] into received()
  void combine(std::byte* out);       ///< received(), now the experts' results, into out [T, H]

  /// Rows of each local expert, [L]. They lie one expert after the other, each by (source, token).
  [[nodiscard]] std::span<std::int64_t const> expert_counts() const noexcept { return expert_counts_; }
  [[nodiscard]] std::byte* received() const noexcept { return received_.data(); }
  [[nodiscard]] std::int64_t received_rows() const noexcept { return received_rows_; }

 private:
  using RowMove = davit::host::RowMove;
  using Term = davit::host::Term;

  struct Pair {
    std::int64_t token;
    std::size_t rank;
    std::int64_t number;
  };
  /// Terms `first` to `first + count`, summed into row `to`.
  struct Sum {
    std::int64_t to;
    std::size_t first;
    std::size_t count;
  };
  /// Of one pair: K local ids, -1 where the choice is not the taker's, and K weights.
  struct Choices {
    std::span<std::int32_t> ids;
    std::span<float> weights;
  };

  void number_pairs(std::span<std::int32_t const> ids);
  void exchange_choices(std::span<std::int32_t const> ids, std::span<float const> weights);
  void plan_expansion();
  void plan_partial_sums();
  void plan_final_sums();
  [[nodiscard]] Sum add_pair_sum(std::int64_t taken_pair);
  [[nodiscard]] Choices choices_at(Buffer const& buffer, std::int64_t pair) const;
  [[nodiscard]] bool is_own(std::int64_t taken_pair) const;
  [[nodiscard]] std::span<Term const> terms_of(Sum const& sum) const;
  [[nodiscard]] std::byte* row_of(Buffer const& buffer, std::int64_t row) const;

  Shape shape_;
  std::size_t k_;
  std::size_t row_bytes_;
  std::size_t choices_bytes_;
  MPI_Comm comm_;
  std::size_t me_ = 0;
  ExpertMap map_;
  MpiRows rows_;
  MpiRows choices_;
  std::vector<Pair> pairs_;                             // by (token, rank)
  MpiRows::Blocks sent_, taken_;                        // own pairs included
  MpiRows::Blocks sent_to_others_, taken_from_others_;  // the same places, but no own pairs
  std::int64_t sent_total_ = 0;
  std::int64_t taken_total_ = 0;
  Buffer sent_choices_, taken_choices_;
  Buffer outgoing_, incoming_;  // one row a pair; on the way back they change parts
  Buffer received_;
  std::int64_t received_rows_ = 0;
  std::vector<RowMove> packs_, expansions_, own_expansions_;
  std::vector<std::int64_t> expert_counts_;
  std::vector<std::int64_t> expert_rows_;  // [taken pairs, K]
  std::vector<Term> terms_;
  std::vector<Sum> partial_sums_;  // of other ranks' tokens, into incoming_
  std::vector<Sum> own_sums_;      // of each own token, into own_part_; empty where no choice is here
  std::vector<Sum> final_sums_;    // of each own token
  Buffer own_part_;                // one row
};

}  // namespace support
