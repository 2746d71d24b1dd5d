// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that is given back and used again, so that a call does not pay for fresh pages, or for an allocation on a
/// GPU, each time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "davit/expert_group.hpp"

namespace davit::detail {

class RowPool : public std::enable_shared_from_this<RowPool> {
 public:
  /// Where fresh memory comes from; it goes back with its last owner.
  using Source = std::function<std::shared_ptr<void>(std::size_t bytes)>;

  /// @param keeps whether pieces are used again, else each goes back to the source at once.
  explicit RowPool(Source source, bool keeps = true);
  RowPool(RowPool const&) = delete;
  RowPool& operator=(RowPool const&) = delete;

  /// @throws what the source throws. The memory comes back when the last owner drops it, also after the pool's makers
  /// have ended.
  [[nodiscard]] std::shared_ptr<void> take(std::size_t bytes);

 private:
  struct Piece {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
  };
  [[nodiscard]] std::shared_ptr<void> fresh(std::size_t bytes);
  void give_back(Piece piece) noexcept;

  Source source_;
  bool keeps_;
  std::mutex mutex_;
  std::vector<Piece> free_;
};

/// Pages of the host.
[[nodiscard]] std::shared_ptr<RowPool> host_pool();
/// The user's own memory, else `pool`.
[[nodiscard]] std::shared_ptr<RowPool> pool_of(Allocator const& allocator, std::shared_ptr<RowPool> pool);

}  // namespace davit::detail
