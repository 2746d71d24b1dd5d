// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "examples/davit_perf/cuda/change_kernels.hpp"
#include "examples/davit_perf/cuda/links.hpp"
#include "examples/davit_perf/cuda/peers.hpp"
#include "examples/davit_perf/device.hpp"
#include "transports/cuda/cuda_backend.hpp"

namespace perf {
namespace {

constexpr double least_us = 1000;  // what enqueuing costs in the beginning is then lost in it
constexpr std::size_t ceiling_bytes = std::size_t{4} << 20;

class CudaDevice final : public Device {
 public:
  CudaDevice(support::World const& world, davit::Communicator& comm, Options const& options)
      : Device(least_us), comm_(comm), gpu_{world, support::choose_gpu(world, comm), {}} {
    auto const is_nccl = [](std::string const& peer) { return peer.starts_with("nccl"); };
    if (std::ranges::any_of(options.peers, is_nccl)) nccl_ = make_nccl_peers(gpu_);
  }

  Memory allocate(std::size_t bytes) override {
    auto memory = support::device_memory(bytes);
    fill(memory.get(), bytes, 0xff);
    return memory;
  }
  void fill(std::byte* to, std::size_t bytes, int value) override {
    if (bytes != 0) DAVIT_CUDA_CHECK(cudaMemsetAsync(to, value, bytes, gpu_.stream.get()));
    finish();
  }
  void write(std::byte* to, std::span<std::byte const> from) override {
    support::copy(gpu_.stream.get(), to, from.data(), from.size());
    finish();
  }
  std::vector<std::byte> read(std::byte const* from, std::size_t bytes) override {
    std::vector<std::byte> data(bytes);
    finish();  // pageable memory blocks the host, and then no deadline would hold
    support::copy(gpu_.stream.get(), data.data(), from, bytes);
    finish();
    return data;
  }

  void change(BlockChange const& change) override { launch(gpu_.stream.get(), change); }
  void change(RowChange const& change) override { launch(gpu_.stream.get(), change); }

  double time(Batch const& batch) override {
    if (batch.blocks) {
      auto const begin = std::chrono::steady_clock::now();
      batch.calls();
      finish();
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    }
    gpu_.stream.start();
    batch.calls();
    auto const us = gpu_.stream.stop();
    finish();
    return us;
  }
  void finish() override {
    gpu_.stream.wait();
    static_cast<void>(comm_.status());
  }

  std::string describe(std::string const& peer) const override {
    auto const name = davit::cuda::backend().facts(gpu_.device).name;
    return (peer.starts_with("nccl") ? nccl_->describe() : support::mpi_library()) + ", memory of " + name;
  }
  std::optional<double> ceiling() override {
    if (!ceiling_) ceiling_ = gpu_.world.mean(Links(gpu_.world, gpu_.device, ceiling_bytes).both_ways(ceiling_bytes));
    return ceiling_;
  }
  std::optional<std::uint64_t> launches() const override { return launches_of(comm_); }

  std::unique_ptr<ExchangeSide> make_davit(Exchange const& exchange) override {
    return make_davit_exchange(exchange, comm_, gpu_.stream.handle());
  }
  std::unique_ptr<ExchangeSide> make_peer(std::string const& peer, Exchange const& exchange) override {
    return peer == "nccl" ? nccl_->make(exchange) : make_staged_exchange(exchange, gpu_);
  }
  std::unique_ptr<MoeSide> make_davit(MoeProblem const& problem) override {
    return make_davit_moe(problem, comm_, gpu_.stream.handle());
  }
  std::unique_ptr<MoeSide> make_peer(std::string const& peer, MoeProblem const& problem) override {
    if (peer == "nccl-dense") return nccl_->make_dense(problem);
    return peer == "nccl" ? nccl_->make(problem) : make_staged_moe(problem, gpu_);
  }

 private:
  davit::Communicator& comm_;
  Gpu gpu_;
  std::unique_ptr<NcclPeers> nccl_;
  std::optional<double> ceiling_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(support::World const& world, davit::Communicator& comm,
                                         Options const& options) {
  return std::make_unique<CudaDevice>(world, comm, options);
}

CudaBuilds cuda_builds() noexcept { return {.cuda = true, .nccl = has_nccl()}; }

}  // namespace perf
