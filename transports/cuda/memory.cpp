// SPDX-License-Identifier: Apache-2.0
// Where pointers point to, and memory that GPUs reach.
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "davit/error.hpp"
#include "transports/cuda/backend.hpp"
#include "transports/cuda/driver.hpp"
#include "transports/cuda/handles.hpp"

namespace davit::cuda {
namespace {

/// Two questions to the driver itself: unlike their runtime counterparts they make no context and leave no error
/// behind.
struct Questions {
  PFN_cuPointerGetAttributes_v7000 pointer_attributes;
  PFN_cuCtxGetCurrent_v4000 current_context;
  PFN_cuCtxGetDevice_v2000 context_device;
};

/// Libraries that the process has loaded, ever.
unsigned long long loads_so_far() noexcept {
  unsigned long long loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;  // the first says it
      },
      &loads);
  return loads;
}

/// Null as long as nobody has loaded the driver; whoever did has reason to use it, and then it stays loaded.
Questions const* questions() noexcept {
  static std::atomic<bool> known = false;
  static Questions found{};
  if (known.load(std::memory_order_acquire)) return &found;
  // Looking a library up takes a microsecond, which a short call on host memory would feel: look again only once
  // something was loaded.
  static std::atomic<unsigned long long> loads_seen = 0;
  auto const loads = loads_so_far();
  if (loads == loads_seen.load(std::memory_order_relaxed)) return nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    loads_seen.store(loads, std::memory_order_relaxed);
    return nullptr;
  }
  static std::mutex mutex;
  std::lock_guard const lock(mutex);
  if (known.load(std::memory_order_relaxed)) return &found;
  // These names never got a new version. The handle is kept: the library must not go away.
  auto const get = [library](auto& to, char const* name) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
    return to != nullptr;
  };
  if (!get(found.pointer_attributes, "cuPointerGetAttributes") || !get(found.current_context, "cuCtxGetCurrent") ||
      !get(found.context_device, "cuCtxGetDevice")) {
    return nullptr;
  }
  known.store(true, std::memory_order_release);
  return &found;
}

/// Registrations of this process, by where they begin.
class Registry {
 public:
  static Registry& of_process() {
    static auto& instance = *new Registry;  // never destroyed: ranks may end after static objects do
    return instance;
  }

  void enter(int device, std::byte* begin, std::size_t bytes) {
    std::lock_guard const lock(mutex_);
    auto const found = entries_.find(begin);
    if (found == entries_.end()) {
      DeviceGuard const guard(device);
      entries_.emplace(begin, Entry{HostRegistration(begin, bytes), bytes, 1});
    } else if (found->second.bytes == bytes) {
      ++found->second.users;
    } else {
      throw SystemError("davit: memory is registered already with " + std::to_string(found->second.bytes) +
                        " bytes, not " + std::to_string(bytes));
    }
  }

  void leave(int device, std::byte* begin) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = entries_.find(begin);
    if (--found->second.users > 0) return;
    try {
      DeviceGuard const guard(device);
      entries_.erase(found);
    } catch (Error const&) {  // the driver is shutting down
      entries_.erase(found);
    }
  }

 private:
  struct Entry {
    HostRegistration registration;
    std::size_t bytes;
    int users;
  };
  std::mutex mutex_;
  std::map<std::byte*, Entry> entries_;
};

/// One user of a registration; unregisters before the memory may go.
class Registered {
 public:
  Registered(int device, std::shared_ptr<std::byte> memory, std::size_t bytes)
      : device_(device), memory_(std::move(memory)) {
    Registry::of_process().enter(device, memory_.get(), bytes);
  }
  ~Registered() { Registry::of_process().leave(device_, memory_.get()); }
  Registered(Registered const&) = delete;
  Registered& operator=(Registered const&) = delete;

 private:
  int device_;
  std::shared_ptr<std::byte> memory_;
};

class Mark final : public StreamMark {
 public:
  Mark(int device, CUstream_st* stream) : device_(device) {
    DeviceGuard const there(device);
    event_.emplace();
    event_->record(stream);
  }
  [[nodiscard]] bool is_passed() const noexcept override {
    try {
      DeviceGuard const there(device_);
      return event_->is_done();
    } catch (Error const&) {
      return true;  // the context is gone
    }
  }

 private:
  int device_;
  std::optional<Event> event_;  ///< made there
};

/// Freed on its device, whichever thread drops it: else the runtime would make a context of its own choice there.
template <class Memory>
std::shared_ptr<std::byte> shared_memory(int device, std::size_t bytes) {
  DeviceGuard const guard(device);
  auto owner = std::make_shared<Memory>(bytes);
  auto* const begin = owner->get();
  return {begin, [owner = std::move(owner), device](std::byte*) mutable {
            try {
              DeviceGuard const there(device);
              owner.reset();
            } catch (Error const&) {
              owner->leak();  // the driver is shutting down
            }
          }};
}

}  // namespace

MemoryPlace CudaBackend::place(void const* pointer) const noexcept {
  constexpr MemoryPlace host{MemoryKind::pageable, -1};
  auto const* const ask = questions();
  if (ask == nullptr || pointer == nullptr) return host;
  unsigned type = 0;
  unsigned managed = 0;
  int device = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &managed, &device};
  // Memory that the driver does not know leaves zeros; a driver that nobody has initialised knows none.
  if (ask->pointer_attributes(3, attributes, values, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS) {
    return host;
  }
  if (managed != 0) return {MemoryKind::managed, device};
  if (type == CU_MEMORYTYPE_DEVICE) return {MemoryKind::device, device};
  return type == CU_MEMORYTYPE_HOST ? MemoryPlace{MemoryKind::pinned, -1} : host;
}

int CudaBackend::current_device_if_chosen() const noexcept {
  auto const* const ask = questions();
  CUcontext context{};
  CUdevice device = -1;
  if (ask == nullptr || ask->current_context(&context) != CUDA_SUCCESS || context == nullptr) return -1;
  return ask->context_device(&device) == CUDA_SUCCESS ? device : -1;
}

std::shared_ptr<void> CudaBackend::register_memory(int device, std::shared_ptr<std::byte> memory, std::size_t bytes) {
  return std::make_shared<Registered>(device, std::move(memory), bytes);
}

std::shared_ptr<std::byte> CudaBackend::device_memory(int device, std::size_t bytes) {
  return shared_memory<DeviceMemory>(device, bytes);
}

std::unique_ptr<StreamMark> CudaBackend::mark(int device, CUstream_st* stream) {
  return std::make_unique<Mark>(device, stream);
}

std::shared_ptr<std::byte> CudaBackend::pinned_memory(int device, std::size_t bytes) {
  return shared_memory<PinnedMemory>(device, bytes);
}

}  // namespace davit::cuda
