// SPDX-License-Identifier: Apache-2.0
#include "tests/support/memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/factory.hpp"
#include "tests/support/stand_in.hpp"

namespace davit::test {
namespace {

class OnStandIn final : public TestStream {
 public:
  [[nodiscard]] CUstream_st* handle() override { return stream_.handle(); }
  void write(std::byte* to, std::vector<std::byte> data) override {
    if (data.empty()) return;
    stream_.submit([to = StandIn::of_process().seen_by_host(to), data = std::move(data)] {
      std::memcpy(to, data.data(), data.size());
      return true;
    });
  }
  void pass(std::chrono::milliseconds time) override {
    stream_.submit([end = std::chrono::steady_clock::now() + time] { return std::chrono::steady_clock::now() > end; });
  }
  [[nodiscard]] bool drain() override { return stream_.drain(); }

 private:
  StandInStream stream_;
};

class StandInDevice final : public TestDevice {
 public:
  DeviceBackend& backend() override { return StandIn::of_process(); }
  void choose(int rank) override { StandIn::choose(rank % StandIn::kDevices); }
  [[nodiscard]] int chosen() const override { return StandIn::of_process().current_device_if_chosen(); }
  void write(std::byte* to, std::span<std::byte const> data) override {
    std::ranges::copy(data, StandIn::of_process().seen_by_host(to));  // none from or to null, too
  }
  void read(std::span<std::byte> data, std::byte const* from) override {
    std::copy_n(StandIn::of_process().seen_by_host(from), data.size(), data.begin());
  }
  std::unique_ptr<TestStream> make_stream() override { return std::make_unique<OnStandIn>(); }
};

TestDevice*& device() noexcept {
  static StandInDevice stand_in;
  static TestDevice* instance = &stand_in;
  return instance;
}

enum class Where { host, device, mixed };

Where& where() {
  static Where instance = [] {
    char const* const set = std::getenv("DAVIT_TEST_MEMORY");
    std::string const text = set == nullptr ? "host" : set;
    if (text == "host") return Where::host;
    if (text == "device") return Where::device;
    if (text == "mixed") return Where::mixed;
    std::fprintf(stderr, "DAVIT_TEST_MEMORY=%s is not host, device or mixed\n", set);
    std::exit(2);
  }();
  return instance;
}

thread_local bool on_device = false;

}  // namespace

void set_test_device(TestDevice& other) noexcept { device() = &other; }
TestDevice& test_device() { return *device(); }

DeviceBackend* test_backend() { return any_on_device() ? &device()->backend() : davit::detail::device_backend(); }
void keep_on_devices() noexcept { where() = Where::device; }
bool is_mixed() { return where() == Where::mixed; }
bool any_on_device() { return where() != Where::host; }
bool is_on_device() { return on_device; }

void enter_rank(int rank) {
  on_device = where() == Where::device || (where() == Where::mixed && rank % 2 == 0);
  if (on_device) device()->choose(rank);
}

Memory::Memory(std::size_t bytes)
    : bytes_(bytes),
      on_device_(on_device),
      memory_(on_device ? device()->backend().device_memory(device()->chosen(), bytes)
                        : std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>())) {}

Memory::Memory(std::span<std::byte const> content) : Memory(content.size()) { write(0, content); }

void Memory::write(std::size_t offset, std::span<std::byte const> data) const {
  if (data.empty()) return;
  if (on_device_) {
    device()->write(memory_.get() + offset, data);
  } else {
    std::memcpy(memory_.get() + offset, data.data(), data.size());
  }
}

std::vector<std::byte> Memory::read(std::size_t offset, std::size_t bytes) const {
  return contents(memory_.get() + offset, bytes);
}

std::vector<std::byte> contents(void const* memory, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  auto const* const from = static_cast<std::byte const*>(memory);
  if (bytes == 0) return data;
  if (any_on_device() && device()->backend().place(from).kind == MemoryKind::device) {
    device()->read(data, from);
  } else {
    std::memcpy(data.data(), from, bytes);
  }
  return data;
}

}  // namespace davit::test
