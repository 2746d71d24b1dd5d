// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "davit/options.hpp"
#include "examples/moe_layer/cuda/cublas_experts.hpp"
#include "examples/moe_layer/device.hpp"
#include "examples/support/cuda/rows.hpp"
#include "transports/cuda/cuda_backend.hpp"

namespace moe {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(support::World const& world, davit::Communicator& comm, Options const& options)
      : world_(world), comm_(comm), options_(options), gpu_(support::choose_gpu(world, comm)) {}

  std::string describe() const override {
    return "memory of " + davit::cuda::backend().facts(gpu_).name + ", experts by cuBLAS in f32";
  }

  void fill(Room& room, std::size_t bytes, int value) override {
    if (bytes > room.bytes) room = {support::device_memory(bytes), bytes};
    if (bytes != 0) DAVIT_CUDA_CHECK(cudaMemsetAsync(room.memory.get(), value, bytes, stream_.get()));
  }
  void write(std::byte* to, std::vector<std::byte> const& from) override {
    support::copy(stream_.get(), to, from.data(), from.size());
    settle();
  }
  void read(std::vector<std::byte>& to, std::byte const* from) override {
    settle();
    support::copy(stream_.get(), to.data(), from, to.size());
    settle();
  }

  std::optional<davit::Stream> stream() const override { return stream_.handle(); }
  void settle() override {
    stream_.wait();
    static_cast<void>(comm_.status());
  }

  std::unique_ptr<Experts> make_experts(std::int64_t first, std::int64_t count) override {
    return make_cublas_experts(options_, first, count, stream_);
  }
  /// Both add in f32, but in another order: a result may be rounded the other way, and near 0, where large terms cancel
  /// each other, be off by what the sums of H and of F terms, each of size 1 together, are rounded by.
  ExpertError expert_error() const override {
    constexpr double u = 0x1p-24;
    return {.differs = true, .roundings = 2, .absolute = 4 * u * static_cast<double>(options_.hidden + options_.ffn)};
  }
  std::unique_ptr<support::RowCarrier> make_carrier(support::LayerShape const& shape) override {
    return support::make_staged_carrier(shape, world_.comm(), stream_);
  }

 private:
  support::World const& world_;
  davit::Communicator& comm_;
  Options const& options_;
  int gpu_;
  support::TimedStream stream_;
};

}  // namespace

bool builds_cuda() noexcept { return true; }

FoundGpu find_gpu(support::World const& world, davit::Communicator& comm, Options const& options) {
  if (options.where == Where::automatic) {
    int const gpu = comm.device();
    if (!world.all(gpu >= 0)) return {nullptr, "no GPU here"};
    if (support::sharing_ranks(world, gpu) && !world.all(davit::environment().allow_shared_gpu)) {
      return {nullptr, "more ranks than GPUs, and DAVIT_ALLOW_SHARED_GPU is not 1"};
    }
  }
  return {std::make_unique<CudaDevice>(world, comm, options), {}};
}

}  // namespace moe
