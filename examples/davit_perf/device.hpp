// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the buffers lie, how time is taken there, and who moves data there: host memory, or a GPU. host_device.cpp is
/// the one, the folder cuda the other, which is built or not; cuda_builds() is the one place that says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "davit/communicator.hpp"
#include "davit/dtype.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/support/world.hpp"

namespace perf {

class Exchange;
class ExchangeSide;
class MoeProblem;
class MoeSide;

/// Memory of a device. Later calls of a side that is given such memory find it there.
using Memory = std::shared_ptr<std::byte>;

/// A few elements of each block of `data` get new values, which follow from `key` alone: Exchange::change.
struct BlockChange {
  std::byte* data;
  std::span<std::int64_t const> counts;  ///< bytes; the same at each call for the same `data`
  std::span<std::int64_t const> displs;
  std::optional<davit::Dtype> numbers;  ///< unset: any bits
  std::int64_t largest;                 ///< of the numbers, which are whole
  std::uint64_t key;
};

/// One element of every 16th of `count` rows gets a new value: MoeProblem::change_rows.
struct RowChange {
  std::byte* rows;
  std::int64_t count;
  std::int64_t hidden;
  davit::Dtype dtype;
  std::uint64_t seed;
  std::uint64_t round;
};

/// What runs between two looks at the clock.
struct Batch {
  std::function<void()> calls;
  bool blocks;  ///< each call waits for its own end: by wall clock, else by the stream's
};

class Device {
 public:
  explicit Device(double least_batch_us) : least_batch_us_(least_batch_us) {}
  Device(Device const&) = delete;
  Device& operator=(Device const&) = delete;
  virtual ~Device() = default;

  /// Filled with 0xff.
  [[nodiscard]] virtual Memory allocate(std::size_t bytes) = 0;
  // All that was enqueued before has run when these return.
  virtual void fill(std::byte* to, std::size_t bytes, int value) = 0;
  virtual void write(std::byte* to, std::span<std::byte const> from) = 0;
  [[nodiscard]] virtual std::vector<std::byte> read(std::byte const* from, std::size_t bytes) = 0;

  // In the order of the sides' calls, and no sooner done than these.
  virtual void change(BlockChange const& change) = 0;
  virtual void change(RowChange const& change) = 0;

  /// Microseconds on this rank from the first call's begin to the last one's end.
  [[nodiscard]] virtual double time(Batch const& batch) = 0;
  /// Waits for all calls. @throws what one of them met.
  virtual void finish() = 0;
  /// No batch is shorter.
  [[nodiscard]] double least_batch_us() const noexcept { return least_batch_us_; }

  /// Words about it, and about `peer` there, for a table's head.
  [[nodiscard]] virtual std::string describe(std::string const& peer) const = 0;
  /// Collective: what copies give that run both ways at once, in GB/s a direction, the ranks' mean; measured once.
  /// Nothing where no link is crossed.
  [[nodiscard]] virtual std::optional<double> ceiling() = 0;
  /// Kernels that davit has launched so far on this rank.
  [[nodiscard]] virtual std::optional<std::uint64_t> launches() const = 0;

  // Collective. A peer by its name; options let no other pass.
  [[nodiscard]] virtual std::unique_ptr<ExchangeSide> make_davit(Exchange const& exchange) = 0;
  [[nodiscard]] virtual std::unique_ptr<ExchangeSide> make_peer(std::string const& peer, Exchange const& exchange) = 0;
  [[nodiscard]] virtual std::unique_ptr<MoeSide> make_davit(MoeProblem const& problem) = 0;
  [[nodiscard]] virtual std::unique_ptr<MoeSide> make_peer(std::string const& peer, MoeProblem const& problem) = 0;

 private:
  double least_batch_us_;
};

/// Memory that grows and never shrinks; contents and addresses are lost where it does.
class GrowingMemory {
 public:
  void ensure(Device& device, std::size_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();
    memory_ = device.allocate(bytes);
    bytes_ = bytes;
  }
  [[nodiscard]] std::byte* get() const noexcept { return memory_.get(); }

 private:
  Memory memory_;
  std::size_t bytes_ = 0;
};

[[nodiscard]] std::unique_ptr<Device> make_host_device(support::World const& world, davit::Communicator& comm);
/// Collective: chooses this rank's GPU and prepares `comm`. Only where cuda_builds() says so.
/// @throws Failure (usage) where a rank has no GPU, or `options` ask for a peer that cannot run so.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(support::World const& world, davit::Communicator& comm,
                                                       Options const& options);
/// Collective: `limits`, printed; after make_cuda_device. Only where cuda_builds() says so.
void run_limits(support::World const& world, Options const& options);

/// What the folder cuda was built with.
struct CudaBuilds {
  bool cuda;
  bool nccl;
};
[[nodiscard]] CudaBuilds cuda_builds() noexcept;

}  // namespace perf
