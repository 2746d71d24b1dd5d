// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rank holds which expert, worked out apart from davit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace support {

/// Contiguous blocks of experts; the first E mod R ranks hold one more.
class ExpertMap {
 public:
  ExpertMap(std::int64_t experts, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      firsts_.push_back(static_cast<std::int64_t>(owners_.size()));
      auto const count = experts / ranks + (rank < experts % ranks ? 1 : 0);
      owners_.insert(owners_.end(), static_cast<std::size_t>(count), rank);
    }
    firsts_.push_back(experts);
  }

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(firsts_.size()) - 1; }
  [[nodiscard]] std::int64_t experts() const noexcept { return firsts_.back(); }
  [[nodiscard]] int owner(std::int32_t expert) const noexcept { return owners_[static_cast<std::size_t>(expert)]; }
  [[nodiscard]] std::int64_t first(int rank) const noexcept { return firsts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t count(int rank) const noexcept { return first(rank + 1) - first(rank); }

 private:
  std::vector<int> owners_;
  std::vector<std::int64_t> firsts_;
};

}  // namespace support
