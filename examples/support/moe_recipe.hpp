// SPDX-License-Identifier: Apache-2.0
/// @file
/// An MoE exchange over an alltoallv of rows, done well: what a program without davit would do. One row a (token, rank)
/// is packed, exchanged and expanded to the experts; partial sums of a rank's experts come back, one row a (token,
/// rank). Lists and buffers are made in route. Where rows lie and what moves them is a carrier's: on the host by MPI,
/// on a GPU by MPI through pinned memory or by NCCL. All of them move and add rows by davit's own row kernels.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "davit/dtype.hpp"
#include "examples/support/buffer.hpp"
#include "examples/support/expert_map.hpp"
#include "examples/support/mpi_rows.hpp"
#include "transports/host/kernels.hpp"

namespace support {

/// Rows to move, and where a carrier keeps them.
struct MoveList {
  std::vector<davit::host::RowMove> moves;
  std::size_t to_bytes = 0;  ///< of the array that they go to
  std::shared_ptr<void> kept;
};

/// Sums of rows: sum i adds the terms first[i] to first[i + 1] - 1.
struct SumList {
  std::vector<davit::host::Term> terms;
  std::vector<std::uint32_t> first{0};
  bool rounds_groups = false;  ///< each group of terms is rounded before it is added
  std::shared_ptr<void> kept;

  void clear() {
    terms.clear();
    first.assign(1, 0);
  }
  void end_sum() { first.push_back(static_cast<std::uint32_t>(terms.size())); }
  [[nodiscard]] std::size_t sums() const noexcept { return first.size() - 1; }
};

/// Rows of one length and dtype. Calls run in order, and may be enqueued.
class RowCarrier {
 public:
  RowCarrier() = default;
  RowCarrier(RowCarrier const&) = delete;
  RowCarrier& operator=(RowCarrier const&) = delete;
  virtual ~RowCarrier() = default;

  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// Waits for all calls: their lists and memory may go.
  virtual void finish() = 0;
  // Makes a list ready for use, once it is filled.
  virtual void keep(MoveList& list) = 0;
  virtual void keep(SumList& list) = 0;

  /// Collective.
  virtual void exchange(std::byte const* send, RowBlocks const& sent, std::byte* recv, RowBlocks const& taken) = 0;
  virtual void move(std::byte* to, std::byte const* from, MoveList const& list) = 0;
  /// Sum i of the list into row i of `out`.
  virtual void sum(std::byte* out, SumList const& list) = 0;
};

/// Shape of a layer.
struct LayerShape {
  std::int64_t experts;
  std::int64_t top_k;
  std::int64_t hidden;
  davit::Dtype dtype;  ///< of rows, partial sums and results
  [[nodiscard]] std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(hidden) * size_of(dtype); }
};

/// The rows are host memory.
[[nodiscard]] std::unique_ptr<RowCarrier> make_host_carrier(LayerShape const& shape, MPI_Comm comm);

/// Memory that grows and never shrinks; contents and addresses are lost where it does.
class CarrierMemory {
 public:
  void ensure(RowCarrier& carrier, std::size_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();
    memory_ = carrier.allocate(bytes);
    bytes_ = bytes;
  }
  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
};

/// Pairs (token, rank) have numbers: those sent by (rank, token), those taken by (source, token). The rank's own pairs
/// have numbers too, but their rows never move: they are read where they lie.
class MoeRecipe {
 public:
  MoeRecipe(LayerShape const& shape, MPI_Comm comm, std::unique_ptr<RowCarrier> carrier);

  // Collective. `ids` [T, K] holds experts, distinct in a token; it and `weights` [T, K] may go after route, which
  // blocks.
  void route(std::span<std::int32_t const> ids, std::span<float const> weights);
  void dispatch(std::byte const* x);  ///< x [T, H] into received()
  void combine(std::byte* out);       ///< received(), now the experts' results, into out [T, H]

  /// Rows of each local expert, [L]. They lie one expert after the other, each by (source, token).
  [[nodiscard]] std::span<std::int64_t const> expert_counts() const noexcept { return expert_counts_; }
  [[nodiscard]] std::byte* received() const noexcept { return received_.data(); }
  [[nodiscard]] std::int64_t received_rows() const noexcept { return received_rows_; }

 private:
  struct Pair {
    std::int64_t token;
    std::size_t rank;
    std::int64_t number;
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
  void add_own_terms(SumList& list, std::int64_t taken_pair);
  [[nodiscard]] Choices choices_at(Buffer const& buffer, std::int64_t pair) const;
  [[nodiscard]] bool is_own(std::int64_t taken_pair) const;
  [[nodiscard]] std::byte* row_of(CarrierMemory const& memory, std::int64_t row) const;

  LayerShape shape_;
  std::size_t k_;
  std::size_t row_bytes_;
  std::size_t choices_bytes_;
  MPI_Comm comm_;
  std::size_t me_ = 0;
  ExpertMap map_;
  std::unique_ptr<RowCarrier> carrier_;
  MpiRows choices_;
  std::vector<Pair> pairs_;                       // by (token, rank)
  RowBlocks sent_, taken_;                        // own pairs included
  RowBlocks sent_to_others_, taken_from_others_;  // the same places, but no own pairs
  std::int64_t sent_total_ = 0;
  std::int64_t taken_total_ = 0;
  Buffer sent_choices_, taken_choices_;
  CarrierMemory outgoing_, incoming_;  // one row a pair; on the way back they change parts
  CarrierMemory received_;
  std::int64_t received_rows_ = 0;
  MoveList packs_, expansions_, own_expansions_;
  std::vector<std::int64_t> expert_counts_;
  std::vector<std::int64_t> expert_rows_;      // [taken pairs, K]
  SumList sums_before_own_, sums_behind_own_;  // of other ranks' tokens, into incoming_ before and behind the own pairs
  SumList final_sums_;                         // of each own token
};

}  // namespace support
