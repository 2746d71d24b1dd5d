// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layer's parts. All of it follows from the seed, so every rank can make any of it; none is ever sent.
///
/// Notation: T tokens of a batch on this rank, K top_k, H hidden, F ffn, E experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/moe_layer/options.hpp"
#include "examples/moe_layer/text.hpp"

namespace moe {

/// A part of the text on this rank, ready to be sent.
struct Batch {
  std::int64_t tokens = 0;
  std::vector<std::byte> rows;    ///< [T, H] of the rows' dtype
  std::vector<std::int32_t> ids;  ///< [T, K], best first, distinct in a token
  std::vector<float> weights;     ///< [T, K], softmax over the K
};

/// What stands before the experts: each token's row, and the gate that chooses its experts.
class Front {
 public:
  explicit Front(Options const& options);
  [[nodiscard]] Batch make_batch(std::span<Token const> tokens) const;

 private:
  void embed(Token const& token, std::span<float> row) const;
  void choose(std::span<float const> scores, Batch& batch) const;

  Options const& options_;
  std::vector<float> gate_;  // [H, E]: a random projection
};

/// y = W2 act(W1 x), in f32.
class Expert {
 public:
  Expert(Options const& options, std::int64_t number);

  /// Replaces `count` rows of the rows' dtype by its results. The bits of a row do not depend on its neighbours.
  void apply(std::byte* rows, std::int64_t count) const;
  [[nodiscard]] std::span<float const> first() const noexcept { return first_; }    ///< W1 [H, F]
  [[nodiscard]] std::span<float const> second() const noexcept { return second_; }  ///< W2 [F, H]

 private:
  void activate(std::span<float> values) const;

  Options const& options_;
  std::vector<float> first_;   // [H, F]
  std::vector<float> second_;  // [F, H]
};

}  // namespace moe
