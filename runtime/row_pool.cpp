// SPDX-License-Identifier: Apache-2.0
#include "runtime/row_pool.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

namespace davit::detail {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostPieces = 8;

}  // namespace

RowPool::RowPool(Source source, bool keeps) : source_(std::move(source)), keeps_(keeps) { free_.reserve(kMostPieces); }

std::shared_ptr<void> RowPool::take(std::size_t bytes) {
  bytes = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  if (!keeps_) return source_(bytes);
  Piece piece;
  {
    std::lock_guard const lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
    }
    if (best != free_.end()) {
      piece = std::move(*best);
      free_.erase(best);
    }
  }
  if (piece.memory == nullptr) piece = {fresh(bytes), bytes};
  void* const data = piece.memory.get();
  return {data, [piece = std::move(piece), pool = shared_from_this()](void*) { pool->give_back(piece); }};
}

/// What is free is too small: rather than run out of memory beside it, lets go of it.
std::shared_ptr<void> RowPool::fresh(std::size_t bytes) {
  try {
    return source_(bytes);
  } catch (std::exception const&) {
    std::lock_guard const lock(mutex_);
    if (free_.empty()) throw;
    free_.clear();
  }
  return source_(bytes);
}

void RowPool::give_back(Piece piece) noexcept {
  std::lock_guard const lock(mutex_);
  if (free_.size() < kMostPieces) {
    free_.push_back(std::move(piece));  // reserved, so it cannot throw
    return;
  }
  // The smallest is the least loss.
  auto const smallest =
      std::min_element(free_.begin(), free_.end(), [](Piece const& a, Piece const& b) { return a.bytes < b.bytes; });
  if (smallest->bytes < piece.bytes) std::swap(*smallest, piece);
}

std::shared_ptr<RowPool> host_pool() {
  return std::make_shared<RowPool>([](std::size_t bytes) {
    void* const data = std::aligned_alloc(kPage, bytes);
    if (data == nullptr) throw std::bad_alloc();
    return std::shared_ptr<void>(data, [](void* memory) { std::free(memory); });
  });
}

std::shared_ptr<RowPool> pool_of(Allocator const& allocator, std::shared_ptr<RowPool> pool) {
  if (!allocator.allocate) return pool;
  return std::make_shared<RowPool>(
      [allocator](std::size_t bytes) {
        void* const data = allocator.allocate(bytes);
        if (data == nullptr) throw std::bad_alloc();
        return std::shared_ptr<void>(data, [allocator, bytes](void* memory) {
          if (allocator.deallocate) allocator.deallocate(memory, bytes);
        });
      },
      false);
}

}  // namespace davit::detail
