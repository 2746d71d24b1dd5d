// SPDX-License-Identifier: Apache-2.0
#include "runtime/side.hpp"

#include <string>
#include <utility>

#include "runtime/call.hpp"
#include "runtime/log.hpp"
#include "runtime/watcher.hpp"

namespace davit::detail {
namespace {

// Words of a device side.
constexpr std::size_t kFences = 0;  // both in one line
constexpr std::size_t kBegun = 1;
constexpr std::size_t kEnded = 2;  // and the next
constexpr std::size_t kFetched = 4;

constexpr auto kRunOut = std::chrono::seconds(10);

}  // namespace

Side::Side(std::unique_ptr<Engine> engine, std::shared_ptr<RowPool> pool, Counter* fences)
    : engine_(std::move(engine)), pool_(std::move(pool)), fences_(fences == nullptr ? own_fences_.data() : fences) {}

void Side::fence(Lane first, Lane then, int rank) {
  auto& word = fences_[static_cast<std::size_t>(first)];
  engine_->submit(first, RaiseOp{&word, ++fenced_});
  engine_->submit(then, HoldOp{&word, fenced_, rank, Awaited::data});
}

DeviceSide::DeviceSide(DeviceBackend& backend, int device, Mesh& mesh)
    : DeviceSide(backend, device, mesh, backend.make_engine(device, {.patience = std::nullopt}),  // the watcher's part
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
  for (auto const index : {kBegun, kEnded, kEnded + 1, kFetched}) store_release(word(index), 0);
}

DeviceSide::~DeviceSide() {
  if (device_engine_->idle()) {
    engine_.reset();
    return;
  }
  device_engine_->abandon();
  if (device_engine_->run_out_within(kRunOut)) {
    engine_.reset();
    return;
  }
  reached_->engine = std::move(engine_);
  Watcher::of_process().leave(*device_engine_, std::move(reached_));
}

void DeviceSide::take_over(std::list<std::shared_ptr<Call>>& calls) noexcept {
  reached_->calls.splice(reached_->calls.end(), calls);
}

std::shared_ptr<void> DeviceSide::for_stream(CUstream_st* stream, std::shared_ptr<void> memory) const {
  auto* const data = memory.get();
  return {data, [backend = &backend_, device = device_, stream, leaving = leaving_,
                 memory = std::move(memory)](void*) mutable {
            try {
              auto mark = backend->mark(device, stream);
              leaving->add(std::move(memory), std::move(mark));
              leaving->sweep();
            } catch (std::exception const& error) {  // the context is gone, say
              log(LogLevel::warn, std::string("received rows stay to the end of the process: ") + error.what());
              static_cast<void>(new std::shared_ptr<void>(std::move(memory)));
            }
          }};
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

void DeviceSide::fetch(std::span<CopyOp const> copies, std::byte* to, std::optional<CUstream_st*> stream) {
  if (stream) device_engine_->begin_after(*stream);
  for (auto const& copy : copies) {
    device_engine_->submit(Lane::up, CopyOp{to, copy.from, copy.bytes});
    to += copy.bytes;
  }
  device_engine_->submit(Lane::up, RaiseOp{&word(kFetched), ++fetches_});
  device_engine_->seal();
}

bool DeviceSide::has_fetched() const noexcept { return has_reached(load_acquire(word(kFetched)), fetches_); }

bool DeviceSide::has_begun(std::uint32_t ticket) const noexcept {
  return has_reached(load_acquire(word(kBegun)), ticket);
}

bool DeviceSide::has_ended(std::uint32_t ticket) const noexcept {
  return has_reached(load_acquire(word(kEnded)), ticket) && has_reached(load_acquire(word(kEnded + 1)), ticket);
}

bool DeviceSide::is_in_a_call() const noexcept {
  auto const begun = load_acquire(word(kBegun));
  return begun != load_acquire(word(kEnded)) || begun != load_acquire(word(kEnded + 1));
}

DeviceSide::Progressed DeviceSide::progressed() const noexcept {
  return {{load_acquire(word(kBegun)), load_acquire(word(kEnded)), load_acquire(word(kEnded + 1))},
          {device_engine_->held_up(Lane::up), device_engine_->held_up(Lane::down)}};
}

bool DeviceSide::Progressed::operator==(Progressed const& other) const noexcept {
  auto const is_same = [](std::optional<Blocked> const& a, std::optional<Blocked> const& b) {
    return a.has_value() == b.has_value() && (!a || (a->peer == b->peer && a->value == b->value));
  };
  return words == other.words && is_same(held_up[0], other.held_up[0]) && is_same(held_up[1], other.held_up[1]);
}

}  // namespace davit::detail
