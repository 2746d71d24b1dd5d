// SPDX-License-Identifier: Apache-2.0
/// @file
/// One alltoallv of all ranks, its data, and what must come out by a naive copy. Equal arguments and equal random
/// numbers give equal exchanges, so every rank makes the whole of it for itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "davit/communicator.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"

namespace davit::test {

/// Blocks of one side of one rank.
struct Side {
  Dtype dtype{};
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> displs;  ///< garbage where the count is zero
  std::size_t bytes = 0;             ///< of a buffer that holds them
};

/// Bytes that each rank sends to each: entry [from * ranks + to].
using Matrix = std::vector<std::uint64_t>;

/// What sizes are drawn from, besides zero and small ones.
struct Sizes {
  std::uint64_t slot = 4096;
  std::uint64_t direct = 32768;
  std::uint64_t most = 20000;
};

[[nodiscard]] Matrix random_matrix(Random& random, int ranks, Sizes const& sizes);
/// As much from i to j as from j to i.
[[nodiscard]] Matrix made_symmetric(Matrix matrix, int ranks);

class Exchange {
 public:
  /// Dtypes, order of blocks and gaps between them are random. Where matrix is symmetric it may be used in place.
  Exchange(Random& random, int ranks, Matrix matrix);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::uint64_t bytes(int from, int to) const {
    return matrix_[static_cast<std::size_t>(from * ranks_ + to)];
  }
  [[nodiscard]] Side const& send(int rank) const { return send_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Side const& recv(int rank) const { return recv_[static_cast<std::size_t>(rank)]; }
  /// What rank `rank` sends, as it lies in its buffer.
  [[nodiscard]] std::vector<std::byte> sent(int rank) const;
  /// What must stand in the receive buffer of rank `rank` afterwards, gaps included.
  [[nodiscard]] std::vector<std::byte> received(int rank) const;
  /// In place: what stands in the receive buffer before.
  [[nodiscard]] std::vector<std::byte> sent_in_place(int rank) const;

 private:
  [[nodiscard]] Side make_side(Random& random, std::vector<std::uint64_t> const& blocks) const;
  void put(std::vector<std::byte>& buffer, Side const& side, int at, int from, int to) const;

  int ranks_;
  Matrix matrix_;
  std::uint64_t salt_;
  std::vector<Side> send_;
  std::vector<Side> recv_;
};

/// The buffers of one rank in an exchange.
class Buffers {
 public:
  Buffers(Exchange const& exchange, int rank, bool in_place = false);

  /// The blocking call.
  void run(Communicator& comm);
  [[nodiscard]] Request post(Communicator& comm);
  void enqueue(Communicator& comm, Stream stream);
  [[nodiscard]] Plan plan(Communicator& comm);
  /// What was expected came, and nothing else was touched; fails the test otherwise. @param what for the message.
  void check(std::string const& what = {}) const;
  /// Nothing was received or touched.
  void check_untouched(std::string const& what = {}) const;
  /// As before the call, for another one.
  void reset();

 private:
  [[nodiscard]] void const* send_pointer() const;

  Exchange const& exchange_;
  int rank_;
  bool in_place_;
  Memory send_;
  Guarded recv_;
};

}  // namespace davit::test
