// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA backend: devices.cpp has what concerns GPUs, memory.cpp what concerns pointers.
#pragma once

#include "transports/device_backend.hpp"

namespace davit::cuda {

class CudaBackend final : public DeviceBackend {
 public:
  [[nodiscard]] MemoryPlace place(void const* pointer) const noexcept override;
  [[nodiscard]] bool shows_a_device() const noexcept override;
  [[nodiscard]] int device_count() const override;
  [[nodiscard]] int current_device_if_chosen() const noexcept override;
  [[nodiscard]] bool is_capturing(CUstream_st* stream) const noexcept override;
  [[nodiscard]] int device_of(CUstream_st* stream) const noexcept override;
  [[nodiscard]] std::unique_ptr<StreamMark> mark(int device, CUstream_st* stream) override;
  [[nodiscard]] DeviceFacts facts(int device) const override;
  [[nodiscard]] std::shared_ptr<void> register_memory(int device, std::shared_ptr<std::byte> memory,
                                                      std::size_t bytes) override;
  [[nodiscard]] std::shared_ptr<std::byte> device_memory(int device, std::size_t bytes) override;
  [[nodiscard]] std::shared_ptr<std::byte> pinned_memory(int device, std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<DeviceEngine> make_engine(int device, DeviceEngineSettings const& settings) override;
};

}  // namespace davit::cuda
