// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stand_in.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>
#include <utility>

#include "davit/error.hpp"

namespace davit::test {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 32;  // of addresses; pages come when they are touched
constexpr std::size_t kAlignment = 256;

thread_local int chosen = -1;

[[noreturn]] void stop(char const* what, void const* memory, std::size_t bytes) {
  std::fprintf(stderr, "stand-in for a GPU: %s: %zu bytes at %p\n", what, bytes, memory);
  std::abort();
}

std::byte* map(int file, int protection) {
  void* const at = mmap(nullptr, kArena, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) stop("no addresses", nullptr, kArena);
  return static_cast<std::byte*>(at);
}

}  // namespace

struct StandInStream::State {
  explicit State(std::size_t most) : room(most) {}
  std::size_t room;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation> operations;
  std::atomic<bool> stopped{false};
  std::thread thread;
};

StandInStream::StandInStream(std::size_t room) : device(chosen), state_(std::make_unique<State>(room)) {
  state_->thread = std::thread([this] {
    auto& s = *state_;
    std::unique_lock lock(s.mutex);
    for (;;) {
      s.changed.wait(lock, [&] { return s.stopped || !s.operations.empty(); });
      if (s.stopped) return;
      auto& operation = s.operations.front();  // stays where it is while others are put behind it
      lock.unlock();
      while (!s.stopped && !operation()) std::this_thread::sleep_for(std::chrono::microseconds(20));
      lock.lock();
      if (s.stopped) return;
      s.operations.pop_front();
      open_.fetch_sub(1, std::memory_order_release);
      s.changed.notify_all();
    }
  });
}

StandInStream::~StandInStream() {
  {
    std::lock_guard const lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void StandInStream::submit(Operation operation) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->operations.size() < state_->room; });
  state_->operations.push_back(std::move(operation));
  open_.fetch_add(1, std::memory_order_relaxed);
  state_->changed.notify_all();
}

std::shared_ptr<std::atomic<bool>> StandInStream::record() {
  auto event = std::make_shared<std::atomic<bool>>(false);
  // Raised where it is dropped: whoever waits for a stream that is destroyed must not wait for ever.
  auto raise = std::shared_ptr<void>(nullptr, [event](void*) { event->store(true, std::memory_order_release); });
  submit([raise = std::move(raise)]() mutable {
    raise.reset();
    return true;
  });
  return event;
}

void StandInStream::wait_for(std::shared_ptr<std::atomic<bool>> event) {
  submit([event = std::move(event)] { return event->load(std::memory_order_acquire); });
}

bool StandInStream::drain(std::chrono::milliseconds patience) const {
  auto const deadline = std::chrono::steady_clock::now() + patience;
  while (!idle()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

std::unique_ptr<StreamMark> StandIn::mark(int, CUstream_st* stream) {
  class Mark final : public StreamMark {
   public:
    explicit Mark(std::shared_ptr<std::atomic<bool>> flag) : flag_(std::move(flag)) {}
    [[nodiscard]] bool is_passed() const noexcept override { return flag_->load(std::memory_order_acquire); }

   private:
    std::shared_ptr<std::atomic<bool>> flag_;
  };
  return std::make_unique<Mark>(StandInStream::of(stream).record());
}

StandIn& StandIn::of_process() {
  static auto& instance = *new StandIn;  // as a driver: never gone
  return instance;
}

StandIn::StandIn() {
  for (auto& arena : arenas_) {
    int const file = memfd_create("stand-in", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(kArena)) != 0) stop("no memory", nullptr, kArena);
    arena.faulting = map(file, PROT_NONE);
    arena.touchable = map(file, PROT_READ | PROT_WRITE);
    arena.free = {{0, kArena}};
    close(file);
  }
}

int StandIn::device_of(void const* memory) const noexcept {
  auto const* const at = static_cast<std::byte const*>(memory);
  for (int device = 0; device < kDevices; ++device) {
    auto const* const base = arenas_[device].faulting;
    if (at >= base && at < base + kArena) return device;
  }
  return -1;
}

MemoryPlace StandIn::place(void const* pointer) const noexcept {
  if (int const device = device_of(pointer); device >= 0) return {MemoryKind::device, device};
  std::lock_guard const lock(mutex_);
  auto const* const at = static_cast<std::byte const*>(pointer);
  auto const above = registered_.upper_bound(at);
  if (above == registered_.begin()) return {MemoryKind::pageable, -1};
  auto const& [begin, range] = *std::prev(above);
  return {at < begin + range.bytes ? MemoryKind::pinned : MemoryKind::pageable, -1};
}

void StandIn::check_reach(int device, void const* memory, std::size_t bytes) const {
  if (bytes == 0) return;
  auto const* const last = static_cast<std::byte const*>(memory) + bytes - 1;
  for (void const* const at : {memory, static_cast<void const*>(last)}) {
    auto const there = place(at);
    if (there.kind == MemoryKind::pageable) stop("memory that a GPU does not reach", memory, bytes);
    if (there.kind == MemoryKind::device && there.device != device) stop("another GPU's memory", memory, bytes);
  }
}

int StandIn::current_device_if_chosen() const noexcept { return chosen; }
void StandIn::choose(int device) noexcept { chosen = device; }

DeviceFacts StandIn::facts(int device) const {
  if (device < 0 || device >= kDevices) {
    throw SystemError("davit: there is no stand-in " + std::to_string(device));
  }
  DeviceFacts facts;
  facts.name = "stand-in";
  facts.pci_address = "0000:0" + std::to_string(device) + ":00.0";
  facts.identity = static_cast<std::uint64_t>(device) + 1;
  facts.reaches_host_memory = true;
  return facts;
}

std::byte* StandIn::seen_by_host(void const* memory) const noexcept {
  auto* const at = static_cast<std::byte*>(const_cast<void*>(memory));
  int const device = device_of(memory);
  return device < 0 ? at : arenas_[device].touchable + (at - arenas_[device].faulting);
}

std::shared_ptr<std::byte> StandIn::device_memory(int device, std::size_t bytes) {
  bytes = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard const lock(mutex_);
  auto& free = arenas_[device].free;
  for (auto piece = free.begin(); piece != free.end(); ++piece) {
    auto const [offset, there] = *piece;
    if (there < bytes) continue;
    free.erase(piece);
    if (there > bytes) free.emplace(offset + bytes, there - bytes);
    return {arenas_[device].faulting + offset,
            [this, device, start = offset, bytes](std::byte*) { give_back(device, start, bytes); }};
  }
  throw SystemError("davit: the stand-in has no " + std::to_string(bytes) + " bytes left");
}

void StandIn::give_back(int device, std::size_t offset, std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  auto& free = arenas_[device].free;
  auto piece = free.emplace(offset, bytes).first;
  if (auto const behind = std::next(piece); behind != free.end() && offset + bytes == behind->first) {
    piece->second += behind->second;
    free.erase(behind);
  }
  if (piece == free.begin()) return;
  auto const before = std::prev(piece);
  if (before->first + before->second != offset) return;
  before->second += piece->second;
  free.erase(piece);
}

void StandIn::forget(std::byte* begin) {
  std::lock_guard const lock(mutex_);
  auto const found = registered_.find(begin);
  if (--found->second.users == 0) registered_.erase(found);
}

std::shared_ptr<void> StandIn::register_memory(int, std::shared_ptr<std::byte> memory, std::size_t bytes) {
  auto* const begin = memory.get();
  if (device_of(begin) >= 0) throw SystemError("davit: only host memory can be registered");
  std::lock_guard const lock(mutex_);
  auto& range = registered_.emplace(begin, Range{bytes, 0}).first->second;
  if (range.bytes != bytes) throw SystemError("davit: registered already, with another size");
  ++range.users;
  return {begin, [this, begin, memory = std::move(memory)](void*) { forget(begin); }};
}

std::shared_ptr<std::byte> StandIn::pinned_memory(int device, std::size_t bytes) {
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)),
                                    [](std::byte* at) { std::free(at); });
  auto owner = register_memory(device, memory, bytes);
  return {memory.get(), [owner = std::move(owner)](std::byte*) mutable { owner.reset(); }};
}

}  // namespace davit::test
