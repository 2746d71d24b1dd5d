// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stand-in for GPUs does what every engine must do, so that what is tested with it means something.
#include "tests/support/stand_in.hpp"

#include <gtest/gtest.h>

#include "tests/transports/engine_conformance.hpp"

namespace davit::test {
namespace {

class StandInBench final : public EngineBench {
 public:
  StandInBench() : engine_(StandIn::of_process().make_engine(0, {})) {}
  Engine& engine() override { return *engine_; }
  std::byte* buffer(std::size_t bytes) override { return kept(StandIn::of_process().device_memory(0, bytes)); }
  std::byte* shared(std::size_t bytes) override { return kept(StandIn::of_process().pinned_memory(0, bytes)); }
  void write(std::byte* buffer, std::vector<std::byte> const& data) override {
    std::memcpy(StandIn::of_process().seen_by_host(buffer), data.data(), data.size());
  }
  std::vector<std::byte> read(std::byte const* buffer, std::size_t bytes) override {
    auto const* const from = StandIn::of_process().seen_by_host(buffer);
    return {from, from + bytes};
  }

 private:
  std::byte* kept(std::shared_ptr<std::byte> memory) {
    memory_.push_back(std::move(memory));
    return memory_.back().get();
  }
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::unique_ptr<DeviceEngine> engine_;  // ends first
};

INSTANTIATE_TEST_SUITE_P(StandIn, EngineConformance,
                         testing::Values(EngineKind{"streams", [] { return std::make_unique<StandInBench>(); }, false,
                                                    false}),
                         kind_name);

TEST(StandIn, TellsMemoryApart) {
  auto& backend = StandIn::of_process();
  auto const device = backend.device_memory(3, 100);
  auto const pinned = backend.pinned_memory(0, 100);
  int local = 0;
  EXPECT_EQ(backend.place(device.get() + 99).kind, MemoryKind::device);
  EXPECT_EQ(backend.place(device.get()).device, 3);
  EXPECT_EQ(backend.place(pinned.get() + 99).kind, MemoryKind::pinned);
  EXPECT_EQ(backend.place(&local).kind, MemoryKind::pageable);
  EXPECT_EQ(backend.place(nullptr).kind, MemoryKind::pageable);
}

TEST(StandInDeathTest, TheHostCannotTouchDeviceMemory) {
  auto const device = StandIn::of_process().device_memory(0, 100);
  EXPECT_DEATH(*static_cast<std::byte volatile*>(device.get()) = std::byte{1}, "");
}

TEST(StandInDeathTest, AnEngineReachesOnlyItsOwn) {
  auto& backend = StandIn::of_process();
  auto const other = backend.device_memory(1, 100);
  std::vector<std::byte> pageable(100);
  auto const mine = backend.device_memory(0, 100);
  EXPECT_DEATH(backend.make_engine(0, {})->submit(Lane::up, CopyOp{mine.get(), other.get(), 100}), "another GPU");
  EXPECT_DEATH(backend.make_engine(0, {})->submit(Lane::up, CopyOp{mine.get(), pageable.data(), 100}), "not reach");
}

}  // namespace
}  // namespace davit::test
