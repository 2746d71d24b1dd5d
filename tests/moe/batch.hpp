// SPDX-License-Identifier: Apache-2.0
/// @file
/// One batch of tokens on all ranks: who chose which expert, and the contents of every row, all from a few numbers, so
/// that each rank knows what the others hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "davit/expert_group.hpp"
#include "tests/support/random.hpp"

namespace davit::test {

struct Batch {
  int ranks = 1;
  ExpertGroupOptions options{};
  std::vector<std::vector<std::int64_t>> ids{};  ///< [R][T, K]
  std::vector<std::vector<float>> weights{};     ///< [R][T, K]
  std::uint64_t salt = 0;                        ///< of all contents
  /// Element of x, as a row of the group's dtype; unset: random bytes.
  std::function<float(int source, std::int64_t token, std::int64_t column)> x{};
  bool identity = false;  ///< experts give back what they get; else rows of their own

  [[nodiscard]] std::int64_t tokens(int rank) const;
  /// Bytes of a row of [H] of the group's dtype.
  [[nodiscard]] std::size_t row_bytes() const;
  /// Fills a row of x (array 0) or of payload `array - 1`.
  void fill_row(std::size_t array, int source, std::int64_t token, std::span<std::byte> row) const;
  /// Fills what an expert makes of a token: [H] of the group's dtype, finite.
  void fill_expert_row(int source, std::int64_t token, std::int64_t expert, std::span<std::byte> row) const;
  /// Fills a row of the bias: [H] of `dtype`.
  void fill_bias(int rank, std::int64_t token, Dtype dtype, std::span<std::byte> row) const;
  /// Settings in words, for messages.
  [[nodiscard]] std::string text() const;
};

/// A batch in which `choose(rank, token)` gives each token's K ids, and all weights are `weights`.
[[nodiscard]] Batch chosen_batch(int ranks, ExpertGroupOptions const& options, std::vector<std::int64_t> const& tokens,
                                 std::vector<float> const& weights,
                                 std::function<std::vector<std::int64_t>(int rank, std::int64_t token)> const& choose);

/// Random settings: few and many experts, all dtypes, all reduction groups.
[[nodiscard]] ExpertGroupOptions random_options(Random& random, int ranks);
/// Random choices: ranks without tokens, unused entries with NaN weights, the same expert twice, crowded experts.
[[nodiscard]] Batch random_batch(Random& random, int ranks, ExpertGroupOptions const& options);

}  // namespace davit::test
