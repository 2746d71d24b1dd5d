// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/cuda/cublas_experts.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <type_traits>

#include "examples/moe_layer/cuda/kernels.hpp"

namespace moe {
namespace {

void check(cublasStatus_t status, char const* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw support::Failure(support::Exit::failed, std::string(call) + ": " + cublasGetStatusString(status));
}

struct DestroyCublas {
  void operator()(cublasHandle_t handle) const noexcept { static_cast<void>(cublasDestroy(handle)); }
};

using Floats = std::shared_ptr<float>;

Floats floats_on_gpu(std::size_t count) {
  auto const memory = support::device_memory(count * sizeof(float));
  return {memory, reinterpret_cast<float*>(memory.get())};
}

/// As Expert, in the same f32; products are added in cuBLAS's order.
class CublasExperts final : public ExpertsByRows {
 public:
  CublasExperts(Options const& options, std::int64_t first, std::int64_t count, support::TimedStream const& stream)
      : ExpertsByRows(options), stream_(stream.get()) {
    cublasHandle_t made = nullptr;
    check(cublasCreate(&made), "cublasCreate");
    cublas_.reset(made);
    check(cublasSetStream(made, stream_), "cublasSetStream");
    check(cublasSetMathMode(made, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");  // f32, and not what passes for it
    for (auto number = first; number < first + count; ++number) {
      Expert const expert(options, number);
      weights_.push_back({upload(expert.first()), upload(expert.second())});
      stream.wait();  // the expert's memory goes
    }
  }

  [[nodiscard]] std::int64_t count() const override { return static_cast<std::int64_t>(weights_.size()); }

  void apply(std::int64_t expert, std::byte* rows, std::int64_t count) override {
    auto const& [first, second] = weights_[static_cast<std::size_t>(expert)];
    auto const hidden = options().hidden;
    auto const ffn = options().ffn;
    for (std::int64_t at = 0; at < count; at += block) {
      auto const here = std::min(block, count - at);
      reserve(here);
      auto* const data = rows + static_cast<std::size_t>(at) * options().row_bytes();
      auto const elements = static_cast<std::size_t>(here * hidden);
      launch_widen(stream_, options().dtype, data, x_.get(), elements);
      multiply(x_.get(), first.get(), inner_.get(), here, hidden, ffn);
      launch_activate(stream_, options().activation, inner_.get(), static_cast<std::size_t>(here * ffn));
      multiply(inner_.get(), second.get(), x_.get(), here, ffn, hidden);
      launch_narrow(stream_, options().dtype, x_.get(), data, elements);
    }
  }

 private:
  static constexpr std::int64_t block = 8192;  // rows at a time, so that the f32 copies stay small

  [[nodiscard]] Floats upload(std::span<float const> values) const {
    auto floats = floats_on_gpu(values.size());
    support::copy(stream_, floats.get(), values.data(), values.size_bytes());
    return floats;
  }
  void reserve(std::int64_t rows) {
    if (rows <= rows_) return;
    rows_ = rows;
    x_ = floats_on_gpu(static_cast<std::size_t>(rows * options().hidden));
    inner_ = floats_on_gpu(static_cast<std::size_t>(rows * options().ffn));
  }
  /// y [rows, n] = x [rows, m] w [m, n], all row-major: for cuBLAS, by columns, y' = w' x'.
  void multiply(float const* x, float const* w, float* y, std::int64_t rows, std::int64_t m, std::int64_t n) const {
    constexpr float one = 1;
    constexpr float zero = 0;
    auto const number = [](std::int64_t value) { return static_cast<int>(value); };
    check(cublasSgemm(cublas_.get(), CUBLAS_OP_N, CUBLAS_OP_N, number(n), number(rows), number(m), &one, w, number(n),
                      x, number(m), &zero, y, number(n)),
          "cublasSgemm");
  }

  struct Weights {
    Floats first;   // [H, F]
    Floats second;  // [F, H]
  };

  cudaStream_t stream_;
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, DestroyCublas> cublas_;
  std::vector<Weights> weights_;
  std::int64_t rows_ = 0;
  Floats x_, inner_;
};

}  // namespace

std::unique_ptr<Experts> make_cublas_experts(Options const& options, std::int64_t first, std::int64_t count,
                                             support::TimedStream const& stream) {
  return std::make_unique<CublasExperts>(options, first, count, stream);
}

}  // namespace moe
