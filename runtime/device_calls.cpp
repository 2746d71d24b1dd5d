// SPDX-License-Identifier: Apache-2.0
// What a communicator does with GPUs: which one, whose buffers, calls on streams, and how none of it hangs.
#include <algorithm>

#include "davit/error.hpp"
#include "runtime/alltoallv.hpp"
#include "runtime/preparation.hpp"
#include "runtime/progress.hpp"

namespace davit::detail {
namespace {

std::string quoted(char const* operation, char const* buffer) {
  return "davit: " + std::string(operation) + ": " + buffer;
}

// How long a submission takes before it is asked whether it can end at all. They take microseconds.
constexpr auto kStuck = std::chrono::milliseconds(100);

bool is_on_device(MemoryPlace const& place) noexcept {
  return place.kind == MemoryKind::device || place.kind == MemoryKind::managed;
}

UsageError shared_device(CommunicatorState const& comm, int index, int low, int high) {
  auto const facts = comm.backend->facts(index);
  return UsageError("davit: ranks " + std::to_string(low) + " and " + std::to_string(high) + " are both on GPU " +
                    facts.pci_address + " (" + facts.name +
                    "); give each a GPU of its own (cudaSetDevice, Options::device), or allow it with "
                    "DAVIT_ALLOW_SHARED_GPU=1");
}

}  // namespace

int CommunicatorState::device_index() const {
  if (device != nullptr) return device->device();
  if (backend == nullptr) return -1;
  int const count = backend->device_count();
  if (options.device >= count && options.device >= 0) {
    throw UsageError("davit: option device is " + std::to_string(options.device) + ", must be -1 or below " +
                     std::to_string(count) + ", the GPUs of this process");
  }
  if (options.device >= 0) return options.device;
  if (count == 0) return -1;
  if (int const current = backend->current_device_if_chosen(); current >= 0) return current;
  for (int index = 0; planned_gpu && index < count; ++index) {
    if (PciAddress::parse(backend->facts(index).pci_address) == planned_gpu) return index;
  }
  auto const nodes = bootstrap->nodes();
  auto const me = static_cast<std::size_t>(rank);
  auto const below = std::count(nodes.begin(), nodes.begin() + rank, nodes[me]);
  return static_cast<int>(below) % count;
}

Preparation::Preparation(CommunicatorState& comm) : Call(comm, Operation::prepare) {
  auto* const backend = comm.backend;
  if (backend == nullptr) return;
  bool const is_chosen = comm.device != nullptr || comm.options.device >= 0 || backend->current_device_if_chosen() >= 0;
  if (!is_chosen) return;
  index_ = comm.device_index();
  identity_ = backend->facts(index_).identity;
}

Card Preparation::terms(int) const {
  Card card{};
  card.note = identity_;
  card.address = comm_.options.allow_shared_gpu ? 1 : 0;
  return card;
}

/// All ranks see the same cards, so all come to the same result.
void Preparation::conclude() {
  auto const identity_of = [&](int rank) { return rank == comm_.rank ? identity_ : card(rank).note; };
  auto const allows = [&](int rank) { return (rank == comm_.rank ? terms(rank) : card(rank)).address != 0; };
  for (int low = 0; low < comm_.size; ++low) {
    for (int high = low + 1; high < comm_.size; ++high) {
      if (identity_of(low) == 0 || identity_of(low) != identity_of(high) || (allows(low) && allows(high))) continue;
      if (low == comm_.rank || high == comm_.rank) throw shared_device(comm_, index_, low, high);
      throw PeerError("davit: prepare: ranks " + std::to_string(low) + " and " + std::to_string(high) +
                          " have chosen the same GPU" + comm_.where(number),
                      low);
    }
  }
}

void CommunicatorState::finish_preparation(Preparation const& preparation) {
  if (preparation.device() < 0) return;
  if (device == nullptr) make_device(preparation.device());
  std::lock_guard const held(mutex_);
  for (int peer = 0; peer < size; ++peer) device->reach(peer);
}

void CommunicatorState::make_device(int index) {
  auto const facts = backend->facts(index);
  int const other = mesh->claim_device(facts.identity);
  if (other >= 0 && !options.allow_shared_gpu) {
    mesh->release_device();
    throw shared_device(*this, index, std::min(rank, other), std::max(rank, other));
  }
  try {
    auto made = std::make_unique<DeviceSide>(*backend, index, *mesh, options.timeout);
    std::lock_guard const held(mutex_);
    device = std::move(made);
  } catch (...) {
    mesh->release_device();
    throw;
  }
  Progress::of_process().watch(*this);
}

Side& CommunicatorState::side_for(char const* operation, std::span<NamedBuffer const> buffers,
                                  std::optional<Stream> stream, bool wants_device) {
  wants_device = wants_device || stream;
  if (backend == nullptr) {
    if (!wants_device) return host;
    throw UsageError(quoted(operation, stream ? "a stream is given" : "rows on a GPU are asked for") +
                     ", but this davit was built without a GPU backend");
  }
  NamedBuffer const* on_device = nullptr;
  NamedBuffer const* pageable = nullptr;
  int index = -1;
  for (auto const& buffer : buffers) {
    if (buffer.data == nullptr) continue;
    auto const place = backend->place(buffer.data);
    if (place.kind == MemoryKind::pageable) pageable = &buffer;
    if (!is_on_device(place)) continue;
    if (on_device != nullptr && place.device != index) {
      throw UsageError(quoted(operation, on_device->name) + " is on GPU " + std::to_string(index) + " and " +
                       buffer.name + " on GPU " + std::to_string(place.device) + ", both must be on one");
    }
    if (on_device == nullptr) on_device = &buffer;
    index = place.device;
  }
  if (on_device == nullptr && !wants_device) return host;
  if (pageable != nullptr) {
    throw UsageError(quoted(operation, pageable->name) + " is host memory that the GPU cannot reach, while " +
                     (on_device != nullptr ? on_device->name + (" is on GPU " + std::to_string(index))
                      : stream             ? "a stream is given"
                                           : "rows on a GPU are asked for") +
                     "; it must be device, managed, allocated by cudaMallocHost or registered memory");
  }
  if (device == nullptr) {
    if (stream) {
      throw UsageError(quoted(operation, "a stream is given, but the communicator has no GPU yet; choose one ") +
                       "(cudaSetDevice, or Options::device), then call prepare()");
    }
    if (index < 0) index = device_index();
    if (index < 0) throw UsageError(quoted(operation, "rows on a GPU are asked for, but there is no GPU"));
    if (options.device >= 0 && options.device != index) {
      throw UsageError(quoted(operation, on_device->name) + " is on GPU " + std::to_string(index) +
                       ", must be on GPU " + std::to_string(options.device) + ", as option device says");
    }
    make_device(index);
  }
  if (stream && backend->is_capturing(stream->handle())) {
    throw UsageError(
        quoted(operation, "the stream is being captured into a graph; what copy engines do for davit cannot ") +
        "be replayed: enqueue it outside of the capture");
  }
  if (index >= 0 && index != device->device()) {
    throw UsageError(quoted(operation, on_device->name) + " is on GPU " + std::to_string(index) + ", must be on GPU " +
                     std::to_string(device->device()) + ", the communicator's");
  }
  return *device;
}

void CommunicatorState::check_elements(char const* operation, Side const& side, NamedBuffer const& buffer,
                                       Dtype dtype) const {
  auto const address = reinterpret_cast<std::uintptr_t>(buffer.data);
  if (&side == &host || address % size_of(dtype) == 0) return;
  throw UsageError(quoted(operation, buffer.name) + " begins at an address that is no multiple of " +
                   std::to_string(size_of(dtype)) + ", the size of " + name_of(dtype) + ", as a GPU needs it to add");
}

std::byte const* CommunicatorState::fetch_from_device(std::initializer_list<CopyOp> copies,
                                                      std::optional<Stream> stream) {
  std::size_t bytes = 0;
  for (auto const& copy : copies) bytes += copy.bytes;
  std::unique_lock const held(mutex_);
  auto* const to = device->host_memory(bytes);
  auto& engine = device->device_engine();
  if (stream) engine.begin_after(stream->handle());
  std::size_t at = 0;
  for (auto const& copy : copies) {
    engine.submit(Lane::up, CopyOp{to + at, copy.from, copy.bytes});
    at += copy.bytes;
  }
  engine.seal();
  Backoff backoff(eagerness);
  auto const deadline = std::chrono::steady_clock::now() + options.timeout;
  while (!engine.idle()) {
    engine.progress();
    if (!backoff.idle()) continue;
    look_after();
    throw_if_failed();
    if (std::chrono::steady_clock::now() > deadline) {
      throw TimeoutError("davit: route: choices did not come from the GPU within " +
                             std::to_string(options.timeout.count()) + " ms" + where(number()),
                         -1);
    }
  }
  return to;
}

Side& side_of(CommunicatorState& comm, char const* operation, Exchange const& exchange, std::optional<Stream> stream) {
  NamedBuffer const buffers[] = {{"send", exchange.send.data}, {"recv", exchange.recv.data}};
  return comm.side_for(operation, buffers, stream);
}

void CommunicatorState::enqueue(std::shared_ptr<Call> call) {
  {
    std::unique_lock const held(mutex_);
    throw_if_failed();
    queue_.push_back(call);
    wait_until_done(*call);
    if (call->error) std::rethrow_exception(call->error);
    enqueued_.push_back(std::move(call));
  }
  Progress::of_process().add(*this);
}

void CommunicatorState::awaited_by_enqueued(std::vector<int>& peers) const {
  if (!enqueued_.empty()) enqueued_.front()->awaited(peers);
}

void CommunicatorState::read_late_cards() {
  missing_.assign(static_cast<std::size_t>(size), false);
  for (auto const& call : enqueued_) call->settle_cards(missing_);
}

void CommunicatorState::settle_enqueued() noexcept {
  if (enqueued_.empty()) return;
  auto const oldest = enqueued_.front();  // fail() lets go of it
  try {
    read_late_cards();
    while (!enqueued_.empty() && enqueued_.front()->has_run()) {
      enqueued_.pop_front();
      enqueued_deadline_ = {};
      first_task_ = false;
    }
  } catch (...) {
    fail_by(*oldest);
  }
}

bool CommunicatorState::enqueued_are_done() {
  std::lock_guard const held(mutex_);
  settle_enqueued();
  return enqueued_.empty();
}

void CommunicatorState::drain() {
  Backoff backoff(Eagerness::rest);
  auto const deadline = std::chrono::steady_clock::now() + options.timeout;
  while (!enqueued_are_done()) {
    if (!backoff.idle()) continue;
    std::lock_guard const held(mutex_);
    look_after();
    // The deadline of a call runs from where its stream has come to it; here the program's own work has one too.
    if (enqueued_.empty() || enqueued_.front()->has_begun() || std::chrono::steady_clock::now() < deadline) continue;
    auto const late = enqueued_.front()->number;
    auto const text = "davit: the communicator was destroyed before a stream came to its call" + where(late);
    fail(rank, late, std::make_exception_ptr(UsageError(text)), text);
  }
}

void CommunicatorState::look_after_enqueued(bool look_for_death) {
  settle_enqueued();
  if (enqueued_.empty()) return;
  auto const oldest = enqueued_.front();
  // The program's own work before it takes as long as it takes.
  if (!oldest->has_begun()) return;
  look_after(*oldest, enqueued_deadline_, look_for_death);
}

CommunicatorState::Submitting::Submitting(CommunicatorState& state) noexcept : state_(state) {
  state_.submissions_.fetch_add(1, std::memory_order_release);
}

void CommunicatorState::Submitting::throw_if_rescued() const {
  if (!state_.rescued_.load(std::memory_order_acquire)) return;
  if (state_.rescue_is_peer_) throw PeerError(state_.rescue_text_, state_.rescue_culprit_);
  throw TimeoutError(state_.rescue_text_, state_.rescue_culprit_);
}

/// Nobody but the submitting thread holds the lock, and that one is stuck in the driver.
void CommunicatorState::rescue() noexcept {
  auto const submission = submissions_.load(std::memory_order_acquire);
  if (submission % 2 == 0) return;
  auto& engine = device->device_engine();
  if (!rescued_.load(std::memory_order_relaxed)) {
    auto const now = std::chrono::steady_clock::now();
    if (stuck_movement_.since_last_look(engine) || submission != seen_submission_) stuck_since_ = now;
    seen_submission_ = submission;
    if (now - stuck_since_ < kStuck) return;  // it is just at work
    auto held_up = engine.held_up(Lane::up);
    if (!held_up) held_up = engine.held_up(Lane::down);
    auto const trouble = held_up ? mesh->trouble(held_up->peer, true) : std::nullopt;
    if (trouble && stuck_movement_.since_last_look(engine)) return;  // what the peer did before has helped
    if (!trouble && now - stuck_since_ < options.timeout) return;
    rescue_culprit_ = trouble ? trouble->culprit : held_up ? held_up->peer : -1;
    rescue_text_ = "davit: the GPU takes no more work: " +
                   (trouble ? trouble->text
                            : "nothing moved for " + std::to_string(options.timeout.count()) +
                                  " ms, waiting for rank " + std::to_string(rescue_culprit_)) +
                   where(number());
    rescue_is_peer_ = trouble.has_value();
    mesh->set_failed(rescue_culprit_, number(), rescue_text_);
    rescued_.store(true, std::memory_order_release);
  }
  engine.release_holds();
}

}  // namespace davit::detail
