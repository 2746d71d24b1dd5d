// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "examples/moe_layer/device.hpp"

namespace moe {
namespace {

class HostDevice final : public Device {
 public:
  HostDevice(support::World const& world, Options const& options, std::string why)
      : world_(world), options_(options), why_(std::move(why)) {}

  std::string describe() const override { return "host memory" + (why_.empty() ? "" : " (" + why_ + ")"); }

  void fill(Room& room, std::size_t bytes, int value) override {
    if (bytes > room.bytes) {
      auto const buffer = std::make_shared<support::Buffer>(bytes);
      room = {{buffer, buffer->data()}, bytes};
    }
    if (bytes != 0) std::memset(room.memory.get(), value, bytes);
  }
  void write(std::byte* to, std::vector<std::byte> const& from) override { std::ranges::copy(from, to); }
  void read(std::vector<std::byte>& to, std::byte const* from) override { std::copy_n(from, to.size(), to.begin()); }

  std::optional<davit::Stream> stream() const override { return std::nullopt; }
  void settle() override {}

  std::unique_ptr<Experts> make_experts(std::int64_t first, std::int64_t count) override {
    return std::make_unique<LocalExperts>(options_, first, count);
  }
  ExpertError expert_error() const override { return {}; }
  std::unique_ptr<support::RowCarrier> make_carrier(support::LayerShape const& shape) override {
    return support::make_host_carrier(shape, world_.comm());
  }

 private:
  support::World const& world_;
  Options const& options_;
  std::string why_;
};

}  // namespace

std::unique_ptr<Device> make_device(support::World const& world, davit::Communicator& comm, Options const& options) {
  std::string why_not;
  if (options.where == Where::automatic && options.layout == davit::Layout::by_source) {
    why_not = "with by_source a rank adds its experts' rows itself, here on the host";
  } else if (options.where != Where::host && builds_cuda()) {
    auto found = find_gpu(world, comm, options);
    if (found.device != nullptr) return std::move(found.device);
    why_not = found.why_not;
  }
  return std::make_unique<HostDevice>(world, options, why_not);
}

}  // namespace moe
