// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>

#include "examples/davit_perf/change.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/exchange.hpp"
#include "examples/davit_perf/moe.hpp"
#include "examples/support/buffer.hpp"
#include "transports/host/kernels.hpp"

namespace perf {
namespace {

constexpr double least_us = 200;

class HostDevice final : public Device {
 public:
  HostDevice(support::World const& world, davit::Communicator& comm) : Device(least_us), world_(world), comm_(comm) {}

  Memory allocate(std::size_t bytes) override {
    auto const buffer = std::make_shared<support::Buffer>(bytes);
    return {buffer, buffer->data()};
  }
  void fill(std::byte* to, std::size_t bytes, int value) override {
    if (bytes != 0) std::memset(to, value, bytes);
  }
  void write(std::byte* to, std::span<std::byte const> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  std::vector<std::byte> read(std::byte const* from, std::size_t bytes) override { return {from, from + bytes}; }

  void change(BlockChange const& change) override {
    auto const element = change.numbers ? size_of(*change.numbers) : sizeof(std::uint64_t);
    for (std::size_t block = 0; block < change.counts.size(); ++block) {
      auto const bytes = change.counts[block];
      if (bytes == 0) continue;
      auto const length = std::min(static_cast<std::int64_t>(element), bytes);
      for (std::int64_t i = 0; i < changed_places; ++i) {
        auto* const to = change.data + change.displs[block] + changed_at(bytes, length, i);
        auto const bits = changed_bits(change.key, static_cast<std::int64_t>(block), i);
        if (change.numbers) {
          davit::host::store_element(*change.numbers, static_cast<float>(whole_number(bits, change.largest)), to);
        } else {
          std::memcpy(to, &bits, static_cast<std::size_t>(length));
        }
      }
    }
  }
  void change(RowChange const& change) override {
    auto const element = static_cast<std::int64_t>(size_of(change.dtype));
    auto const column = changed_column(change.round, change.hidden);
    auto row = static_cast<std::int64_t>(change.round % changed_row_step);
    for (; row < change.count; row += changed_row_step) {
      davit::host::store_element(change.dtype, changed_value(change.seed, change.round, row),
                                 change.rows + (row * change.hidden + column) * element);
    }
  }

  double time(Batch const& batch) override {
    auto const start = std::chrono::steady_clock::now();
    batch.calls();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  void finish() override {}

  std::string describe(std::string const&) const override { return support::mpi_library() + ", host memory"; }
  std::optional<double> ceiling() override { return std::nullopt; }
  std::optional<std::uint64_t> launches() const override { return std::nullopt; }

  std::unique_ptr<ExchangeSide> make_davit(Exchange const& exchange) override {
    return make_davit_exchange(exchange, comm_);
  }
  std::unique_ptr<ExchangeSide> make_peer(std::string const&, Exchange const& exchange) override {
    return make_mpi_exchange(exchange, world_);
  }
  std::unique_ptr<MoeSide> make_davit(MoeProblem const& problem) override { return make_davit_moe(problem, comm_); }
  std::unique_ptr<MoeSide> make_peer(std::string const& peer, MoeProblem const& problem) override {
    return peer == "mpi-expert" ? make_mpi_expert_moe(problem, world_) : make_mpi_moe(problem, world_);
  }

 private:
  support::World const& world_;
  davit::Communicator& comm_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(support::World const& world, davit::Communicator& comm) {
  return std::make_unique<HostDevice>(world, comm);
}

}  // namespace perf
