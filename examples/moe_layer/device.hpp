// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the layer's rows lie and its experts work: host memory (host_device.cpp), or a GPU (the folder cuda, which is
/// built or not; none.cpp stands in for it).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "davit/communicator.hpp"
#include "examples/moe_layer/experts.hpp"
#include "examples/moe_layer/options.hpp"
#include "examples/support/moe_recipe.hpp"
#include "examples/support/world.hpp"

namespace moe {

/// Memory that grows and never shrinks; contents are lost where it does.
struct Room {
  std::shared_ptr<std::byte> memory;
  std::size_t bytes = 0;
};

class Device {
 public:
  Device() = default;
  Device(Device const&) = delete;
  Device& operator=(Device const&) = delete;
  virtual ~Device() = default;

  /// In words, with who calculates.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Makes `room` at least `bytes` long, and sets that much of it to `value`.
  virtual void fill(Room& room, std::size_t bytes, int value) = 0;
  virtual void write(std::byte* to, std::vector<std::byte> const& from) = 0;
  virtual void read(std::vector<std::byte>& to, std::byte const* from) = 0;

  /// What davit's calls are enqueued on; nothing: they block.
  [[nodiscard]] virtual std::optional<davit::Stream> stream() const = 0;
  /// Waits for all that was enqueued. @throws what it met.
  virtual void settle() = 0;

  [[nodiscard]] virtual std::unique_ptr<Experts> make_experts(std::int64_t first, std::int64_t count) = 0;
  /// By how much its experts' results may differ from those of the reference.
  [[nodiscard]] virtual ExpertError expert_error() const = 0;
  [[nodiscard]] virtual std::unique_ptr<support::RowCarrier> make_carrier(support::LayerShape const& shape) = 0;
};

/// Collective: as `options` say. What they are given must outlive the device.
/// @throws Failure or UsageError where a GPU is asked for and cannot be had.
[[nodiscard]] std::unique_ptr<Device> make_device(support::World const& world, davit::Communicator& comm,
                                                  Options const& options);

/// Collective: the GPU, or in words why there is none to use; where `options` ask for one, that is raised.
struct FoundGpu {
  std::unique_ptr<Device> device;
  std::string why_not;
};
[[nodiscard]] FoundGpu find_gpu(support::World const& world, davit::Communicator& comm, Options const& options);
[[nodiscard]] bool builds_cuda() noexcept;

}  // namespace moe
