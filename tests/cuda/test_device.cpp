// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/test_device.hpp"

#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "transports/cuda/cuda_backend.hpp"
#include "transports/cuda/handles.hpp"

namespace davit::test {
namespace {

class OnCuda final : public TestStream {
 public:
  [[nodiscard]] CUstream_st* handle() override { return stream_.get(); }
  void write(std::byte* to, std::vector<std::byte> data) override {
    if (data.empty()) return;
    // Pinned and kept: else the copy would not be in stream order.
    auto& kept = written_.emplace_back(data.size());
    std::memcpy(kept.get(), data.data(), data.size());
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(to, kept.get(), data.size(), cudaMemcpyHostToDevice, stream_.get()));
  }
  void pass(std::chrono::milliseconds time) override {
    passes_.push_back(time);
    auto const sleep = [](void* of) { std::this_thread::sleep_for(*static_cast<std::chrono::milliseconds*>(of)); };
    DAVIT_CUDA_CHECK(cudaLaunchHostFunc(stream_.get(), sleep, &passes_.back()));
  }
  [[nodiscard]] bool drain() override {
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!stream_.is_done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::deque<cuda::PinnedMemory> written_;
  std::deque<std::chrono::milliseconds> passes_;
  cuda::Stream stream_;
};

class CudaDevice final : public TestDevice {
 public:
  DeviceBackend& backend() override { return cuda::backend(); }
  void choose(int rank) override { DAVIT_CUDA_CHECK(cudaSetDevice(rank % cuda::backend().device_count())); }
  [[nodiscard]] int chosen() const override { return cuda::backend().current_device_if_chosen(); }
  void write(std::byte* to, std::span<std::byte const> data) override {
    DAVIT_CUDA_CHECK(cudaMemcpy(to, data.data(), data.size(), cudaMemcpyDefault));
    DAVIT_CUDA_CHECK(cudaStreamSynchronize(nullptr));  // a copy to the device may return before it has landed
  }
  void read(std::span<std::byte> data, std::byte const* from) override {
    DAVIT_CUDA_CHECK(cudaMemcpy(data.data(), from, data.size(), cudaMemcpyDefault));
  }
  std::unique_ptr<TestStream> make_stream() override { return std::make_unique<OnCuda>(); }
};

}  // namespace

TestDevice& cuda_device() {
  static auto& instance = *new CudaDevice;
  return instance;
}

}  // namespace davit::test
