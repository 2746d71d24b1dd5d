// SPDX-License-Identifier: Apache-2.0
#include "runtime/side.hpp"

#include <atomic>
#include <utility>

#include "runtime/call.hpp"

namespace davit::detail {
namespace {

// Words of a device side.
constexpr std::size_t kFences = 0;  // both in one line
constexpr std::size_t kBegun = 1;
constexpr std::size_t kEnded = 2;  // and the next

}  // namespace

Side::Side(std::unique_ptr<Engine> engine, std::shared_ptr<RowPool> pool, Counter* fences)
    : engine_(std::move(engine)), pool_(std::move(pool)), fences_(fences == nullptr ? own_fences_.data() : fences) {}

void Side::fence(Lane first, Lane then, int rank) {
  auto& word = fences_[static_cast<std::size_t>(first)];
  engine_->submit(first, RaiseOp{&word, ++fenced_});
  engine_->submit(then, HoldOp{&word, fenced_, rank, Awaited::data});
}

bool Movement::since_last_look(DeviceEngine const& engine) noexcept {
  bool moved = false;
  for (auto const lane : {Lane::up, Lane::down}) {
    auto& seen = seen_[static_cast<std::size_t>(lane)];
    auto const now = engine.held_up(lane);
    bool const is_same =
        seen.has_value() == now.has_value() && (!now || (seen->peer == now->peer && seen->value == now->value));
    moved = moved || !is_same;
    seen = now;
  }
  return moved;
}

DeviceSide::DeviceSide(DeviceBackend& backend, int device, Mesh& mesh, std::chrono::milliseconds patience)
    : DeviceSide(backend, device, mesh, backend.make_engine(device, {.patience = patience}),
                 backend.pinned_memory(device, kWordsBytes)) {}

DeviceSide::DeviceSide(DeviceBackend& backend, int device, Mesh& mesh, std::unique_ptr<DeviceEngine> engine,
                       std::shared_ptr<std::byte> words)
    : Side(std::move(engine), std::make_shared<RowPool>([&backend, device](std::size_t bytes) -> std::shared_ptr<void> {
             return backend.device_memory(device, bytes);
           }),
           reinterpret_cast<Counter*>(words.get()) + 16 * kFences),
      backend_(backend),
      device_(device),
      mesh_(mesh),
      device_engine_(static_cast<DeviceEngine*>(engine_.get())),
      reached_(std::make_unique<Reached>()) {
  reached_->pool = pool();
  reached_->words = std::move(words);
  reached_->registrations.resize(static_cast<std::size_t>(mesh.size()));
  store_release((&word(kFences))[0], 0);
  store_release((&word(kFences))[1], 0);
  for (auto const index : {kBegun, kEnded, kEnded + 1}) store_release(word(index), 0);
}

DeviceSide::~DeviceSide() {
  if (device_engine_->ran_out() && !device_engine_->idle()) device_engine_->abandon();
  bool const ran_out = device_engine_->ran_out();
  engine_.reset();
  if (ran_out) return;
  // In a list, so that nobody takes it for lost.
  static std::atomic<Reached*> left = nullptr;
  auto* const mine = reached_.release();
  mine->next = left.load();
  while (!left.compare_exchange_weak(mine->next, mine)) {
  }
}

void DeviceSide::take_over(std::deque<std::shared_ptr<Call>>& calls) noexcept {
  auto& all = reached_->calls;
  all.insert(all.end(), calls.begin(), calls.end());
  calls.clear();
}

void DeviceSide::reach(int rank) {
  auto& registration = reached_->registrations[static_cast<std::size_t>(rank)];
  if (registration != nullptr) return;
  registration = backend_.register_memory(device_, mesh_.mapping(rank),
                                          mesh_.geometry().control_bytes() + mesh_.geometry().slots_bytes());
}

std::byte* DeviceSide::host_memory(std::size_t bytes) {
  if (bytes > host_bytes_) {
    reached_->host_memory = backend_.pinned_memory(device_, bytes);
    host_bytes_ = bytes;
  }
  return reached_->host_memory.get();
}

std::uint32_t DeviceSide::begin(CUstream_st* stream) {
  device_engine_->begin_after(stream);
  device_engine_->submit(Lane::up, RaiseOp{&word(kBegun), ++tickets_});
  return tickets_;
}

void DeviceSide::end(CUstream_st* stream, std::uint32_t ticket) {
  for (Lane const lane : {Lane::up, Lane::down}) {
    device_engine_->submit(lane, RaiseOp{&word(kEnded + static_cast<std::size_t>(lane)), ticket});
  }
  device_engine_->end_before(stream);
}

bool DeviceSide::has_begun(std::uint32_t ticket) const noexcept {
  return has_reached(load_acquire(word(kBegun)), ticket);
}

bool DeviceSide::has_ended(std::uint32_t ticket) const noexcept {
  return has_reached(load_acquire(word(kEnded)), ticket) && has_reached(load_acquire(word(kEnded + 1)), ticket);
}

}  // namespace davit::detail
