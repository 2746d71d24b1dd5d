// SPDX-License-Identifier: Apache-2.0
/// @file
/// alltoallv and allgatherv: the blocks, the data, and the sides that move them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "davit/communicator.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/support/buffer.hpp"
#include "examples/support/world.hpp"

namespace perf {

/// Sizes of the blocks in bytes, packed one after the other. allgatherv has one block to send, and counts[0] is its
/// size.
struct Blocks {
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> displs;
  std::int64_t total = 0;
  void add(std::int64_t count);
};

/// What one rank sends and receives; a pure function, so every rank knows it of all.
struct Shape {
  Blocks send;
  Blocks recv;
};
[[nodiscard]] Shape shape_of(Operation operation, Skew skew, std::int64_t bytes, int rank, int ranks);

/// One size, with the input that both sides use.
class Exchange {
 public:
  Exchange(Operation operation, Skew skew, std::int64_t bytes, std::uint64_t seed, support::World const& world);

  /// Gives the input of `round`: a few words of each block change.
  void change(std::uint64_t round) noexcept;

  [[nodiscard]] Operation operation() const noexcept { return operation_; }
  [[nodiscard]] Blocks const& send() const noexcept { return shape_.send; }
  [[nodiscard]] Blocks const& recv() const noexcept { return shape_.recv; }
  [[nodiscard]] std::byte const* input() const noexcept { return input_.data(); }
  /// Payload bytes of this rank for other ranks, a block that several need counted for each.
  [[nodiscard]] std::int64_t bytes_to_others() const noexcept;

 private:
  Operation operation_;
  Shape shape_;
  int rank_;
  int ranks_;
  std::uint64_t key_;
  support::Buffer input_;
};

/// One way to do an exchange, with a receive buffer of its own.
class ExchangeSide {
 public:
  explicit ExchangeSide(Exchange const& exchange)
      : exchange_(exchange), output_(static_cast<std::size_t>(exchange.recv().total)) {}
  ExchangeSide(ExchangeSide const&) = delete;
  ExchangeSide& operator=(ExchangeSide const&) = delete;
  virtual ~ExchangeSide() = default;

  /// Collective: the exchange once; the output is complete afterwards.
  virtual void run() = 0;
  [[nodiscard]] std::span<std::byte> output() noexcept { return {output_.data(), output_.bytes()}; }

 protected:
  Exchange const& exchange_;

 private:
  support::Buffer output_;
};

[[nodiscard]] std::unique_ptr<ExchangeSide> make_davit_exchange(Exchange const& exchange, davit::Communicator& comm);
[[nodiscard]] std::unique_ptr<ExchangeSide> make_mpi_exchange(Exchange const& exchange, support::World const& world);

/// Collective. @throws Failure (usage) if MPI cannot count the bytes of the largest size.
void require_mpi_counts(Options const& options, support::World const& world);

}  // namespace perf
