// SPDX-License-Identifier: Apache-2.0
/// @file
/// alltoallv, allgatherv and reduce_scatterv: the blocks, the data, and the sides that move them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "davit/communicator.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/support/world.hpp"

namespace perf {

/// Sizes of the blocks in bytes, packed one after the other. allgatherv has one block to send, and counts[0] is its
/// size; reduce_scatterv has one to receive.
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
[[nodiscard]] Shape shape_of(Options const& options, std::int64_t bytes, int rank, int ranks);

/// One size, with the input that both sides use.
class Exchange {
 public:
  Exchange(Options const& options, std::int64_t bytes, support::World const& world, Device& device);

  /// Gives the input of `round`: a few elements of each block change.
  void change(std::uint64_t round);

  [[nodiscard]] Operation operation() const noexcept { return operation_; }
  /// Of the elements: what is summed, else bytes.
  [[nodiscard]] davit::Dtype dtype() const noexcept { return numbers_.value_or(davit::u8); }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] Blocks const& send() const noexcept { return shape_.send; }
  [[nodiscard]] Blocks const& recv() const noexcept { return shape_.recv; }
  /// In elements of dtype(), which all counts are multiples of.
  [[nodiscard]] std::vector<std::int64_t> in_elements(std::vector<std::int64_t> const& bytes) const;
  [[nodiscard]] std::byte const* input() const noexcept { return input_.get(); }
  /// Payload bytes of this rank for other ranks, a block that several need counted for each.
  [[nodiscard]] std::int64_t bytes_to_others() const noexcept;
  [[nodiscard]] Device& device() const noexcept { return device_; }

 private:
  [[nodiscard]] std::vector<std::byte> first_input() const;

  Operation operation_;
  std::optional<davit::Dtype> numbers_;
  Shape shape_;
  int rank_;
  int ranks_;
  std::uint64_t key_;
  std::int64_t largest_;
  Device& device_;
  Memory input_;
};

/// One way to do an exchange, with a receive buffer of its own.
class ExchangeSide {
 public:
  explicit ExchangeSide(Exchange const& exchange)
      : exchange_(exchange), output_(exchange.device().allocate(output_bytes())) {}
  ExchangeSide(ExchangeSide const&) = delete;
  ExchangeSide& operator=(ExchangeSide const&) = delete;
  virtual ~ExchangeSide() = default;

  /// Collective: the exchange once. The output is complete when the device has finished.
  virtual void run() = 0;
  /// Whether run() waits for its own end.
  [[nodiscard]] virtual bool blocks() const noexcept { return true; }
  [[nodiscard]] std::byte* output() const noexcept { return output_.get(); }
  [[nodiscard]] std::size_t output_bytes() const noexcept { return static_cast<std::size_t>(exchange_.recv().total); }

 protected:
  Exchange const& exchange_;

 private:
  Memory output_;
};

/// davit, blocking or, with a stream, enqueued.
[[nodiscard]] std::unique_ptr<ExchangeSide> make_davit_exchange(Exchange const& exchange, davit::Communicator& comm,
                                                                std::optional<davit::Stream> stream = {});
[[nodiscard]] std::unique_ptr<ExchangeSide> make_mpi_exchange(Exchange const& exchange, support::World const& world);

/// Counts as MPI wants them.
[[nodiscard]] std::vector<int> to_int(std::vector<std::int64_t> const& numbers);

/// Collective. @throws Failure (usage) if MPI cannot count the bytes of the largest size.
void require_mpi_counts(Options const& options, support::World const& world);

}  // namespace perf
