// SPDX-License-Identifier: Apache-2.0
#include "runtime/row_pool.hpp"

#include <gtest/gtest.h>

#include "davit/error.hpp"

namespace davit::test {
namespace {

TEST(RowPool, LetsGoBeforeItRunsOutOfMemory) {
  std::size_t there = 10 * 4096;
  auto const pool = std::make_shared<detail::RowPool>([&](std::size_t bytes) {
    if (bytes > there) throw SystemError("davit: out of memory");
    there -= bytes;
    return std::shared_ptr<void>(new std::byte[bytes], [&there, bytes](void* data) {
      there += bytes;
      delete[] static_cast<std::byte*>(data);
    });
  });
  static_cast<void>(pool->take(4 * 4096));
  EXPECT_NO_THROW(static_cast<void>(pool->take(7 * 4096)));
}

TEST(RowPool, GivesTheSmallestThatFitsAgain) {
  int made = 0;
  auto const pool = std::make_shared<detail::RowPool>([&](std::size_t bytes) {
    ++made;
    return std::shared_ptr<void>(new std::byte[bytes], [](void* data) { delete[] static_cast<std::byte*>(data); });
  });
  void* small = nullptr;
  {
    auto const large = pool->take(10 * 4096);
    auto const piece = pool->take(2 * 4096);
    small = piece.get();
  }
  EXPECT_EQ(pool->take(4096).get(), small);
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace davit::test
