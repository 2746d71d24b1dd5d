// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank's part in a batch: makes the calls, and checks all that comes out of them against the reference.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "davit/expert_group.hpp"
#include "tests/moe/batch.hpp"
#include "tests/moe/reference.hpp"
#include "tests/support/guarded.hpp"

namespace davit::test {

/// What a dispatch is asked for.
struct DispatchWish {
  Layout layout = Layout::by_expert;
  std::int64_t alignment = 1;
  std::size_t row_bytes = 0;
  std::vector<std::size_t> payloads{};  ///< their row_bytes
  bool global_ids = false;
  bool into = false;  ///< into memory of the test's own
};

/// What a combine is asked for.
struct CombineWish {
  Sum sum{};
  std::int64_t alignment = 1;
  bool told = true;  ///< layout, alignment and weighting are named; else they follow from the last dispatch
};

[[nodiscard]] std::string text_of(DispatchWish const& wish);
[[nodiscard]] std::string text_of(CombineWish const& wish);

/// Fails the test unless both are equal, and says where they are not.
void expect_bytes(std::span<std::byte const> actual, std::span<std::byte const> expected, std::string const& what);

class Player {
 public:
  Player(Batch const& batch, int rank, ExpertGroup& group) : batch_(batch), rank_(rank), group_(group) {}

  /// Routes, with ids of 32 or 64 bits, from arrays that are overwritten before it returns.
  [[nodiscard]] Routing route(bool wide_ids = false) const;
  /// Dispatches and checks rows, payloads, ids, weights and counts.
  Received dispatch(Routing& routing, DispatchWish const& wish = {}) const;
  /// Checks once more what a dispatch brought.
  void check(Received const& received, DispatchWish const& wish = {}) const;
  /// Combines rows that the experts made, and checks the result. @returns it, [T, H] of `wish.sum.out`.
  std::vector<std::byte> combine(Routing& routing, CombineWish const& wish) const;
  /// The same with the group's dtype, in the default way.
  std::vector<std::byte> combine(Routing& routing) const;
  /// Route, dispatch, combine, in the default way.
  void play() const;

  /// x, or a payload, of this rank: [T, row_bytes], in plain memory.
  [[nodiscard]] std::vector<std::byte> rows(std::size_t array, std::size_t row_bytes) const;
  /// Rows for combine in a layout, in plain memory; what it must not read is NaN.
  [[nodiscard]] std::vector<std::byte> expert_rows(Layout layout, std::int64_t alignment) const;

  [[nodiscard]] Batch const& batch() const noexcept { return batch_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] ExpertGroup& group() const noexcept { return group_; }

 private:
  void check_counts(ReceivedCounts const& counts, Layout layout, std::int64_t alignment, std::string const& what) const;
  void check_rows(std::byte const* data, std::size_t array, std::size_t row_bytes, DispatchWish const& wish,
                  std::string const& what) const;
  void check_choices(Received const& received, DispatchWish const& wish, std::string const& what) const;
  [[nodiscard]] std::string here() const { return "rank " + std::to_string(rank_) + " of " + batch_.text(); }

  Batch const& batch_;
  int rank_;
  ExpertGroup& group_;
};

/// A small batch of a group's own settings, alike on all ranks, played to see that the group still works.
void play_ordinary(int ranks, int rank, ExpertGroup& group);

}  // namespace davit::test
