// SPDX-License-Identifier: Apache-2.0
/// @file
/// A CUDA engine with memory around it: device memory as users have it, and a registered segment as slots are.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/transports/engine_conformance.hpp"
#include "transports/cuda/cuda_backend.hpp"
#include "transports/cuda/handles.hpp"
#include "transports/segment.hpp"

namespace davit::test {

class CudaBench final : public EngineBench {
 public:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  explicit CudaBench(DeviceEngineSettings const& settings = {})
      : segment_(Segment::create("/dev/shm", kBytes)), device_(cuda::backend().device_memory(0, kBytes)) {
    segment_.reserve(0, kBytes);
    registration_ = cuda::backend().register_memory(0, segment_.mapping(), kBytes);
    engine_ = cuda::backend().make_engine(0, settings);
  }

  DeviceEngine& engine() override { return *engine_; }
  void drop_engine() { engine_.reset(); }
  std::byte* buffer(std::size_t bytes) override { return device_.get() + take(device_used_, bytes); }
  std::byte* shared(std::size_t bytes) override { return segment_.mapping().get() + take(shared_used_, bytes); }
  void write(std::byte* to, std::vector<std::byte> const& data) override { copy(to, data.data(), data.size()); }
  std::vector<std::byte> read(std::byte const* from, std::size_t bytes) override {
    std::vector<std::byte> data(bytes);
    copy(data.data(), from, bytes);
    return data;
  }
  /// All memory may be handed out again.
  void reuse() { device_used_ = shared_used_ = 0; }
  /// Of a stream of the test's own.
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  static std::size_t take(std::size_t& used, std::size_t bytes) {
    auto const begin = used;
    used += (bytes + 255) / 256 * 256;
    if (used > kBytes) throw std::length_error("the bench has no more memory");
    return begin;
  }
  void copy(void* to, void const* from, std::size_t bytes) {
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()));
    stream_.wait();
  }

  Segment segment_;
  std::shared_ptr<std::byte> device_;
  std::shared_ptr<void> registration_;
  cuda::Stream stream_;
  std::unique_ptr<DeviceEngine> engine_;
  std::size_t device_used_ = 0;
  std::size_t shared_used_ = 0;
};

/// Seals, and waits until all has run. Fails the test, and abandons, where that takes too long.
inline void finish(DeviceEngine& engine, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  engine.seal();
  auto const deadline = std::chrono::steady_clock::now() + limit;
  while (!engine.idle()) {
    engine.progress();
    if (std::chrono::steady_clock::now() < deadline) continue;
    ADD_FAILURE() << "the engine's lanes have not run out after " << limit.count() << " ms";
    engine.abandon();
    if (!engine.run_out_within(std::chrono::seconds(10))) ADD_FAILURE() << "and cannot be made to";
    return;
  }
}

}  // namespace davit::test
