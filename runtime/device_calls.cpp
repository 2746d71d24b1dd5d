// SPDX-License-Identifier: Apache-2.0
// What a communicator does with GPUs: which one, whose buffers, calls on streams, and how none of it hangs.
#include <algorithm>

#include "davit/error.hpp"
#include "runtime/alltoallv.hpp"
#include "runtime/log.hpp"
#include "runtime/preparation.hpp"
#include "runtime/progress.hpp"
#include "runtime/watcher.hpp"

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
  for (int rank = 0; rank < comm_.size; ++rank) any_device_ = any_device_ || identity_of(rank) != 0;
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

void CommunicatorState::finish_preparation(int index) {
  if (index < 0) return;
  if (device == nullptr) make_device(index);
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
    auto made = std::make_unique<DeviceSide>(*backend, index, *mesh);
    Watcher::of_process().start();
    auto helper = std::make_unique<Progress>();
    helper->start(*this);
    std::unique_lock held(mutex_);
    device = std::move(made);
    held.unlock();
    Progress::of_process().remove(*this);
    helper_ = std::move(helper);
    helper_->add(*this);  // it has open tasks, perhaps
  } catch (...) {
    mesh->release_device();
    throw;
  }
  Watcher::of_process().add(*this);
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
    if (on_device == nullptr || index < 0) on_device = &buffer;
    if (place.kind == MemoryKind::managed) continue;  // any GPU reaches it
    if (index >= 0 && place.device != index) {
      throw UsageError(quoted(operation, on_device->name) + " is on GPU " + std::to_string(index) + " and " +
                       buffer.name + " on GPU " + std::to_string(place.device) + ", both must be on one");
    }
    index = place.device;
  }
  if (on_device == nullptr && !wants_device) return host;
  if (pageable != nullptr) {
    throw UsageError(quoted(operation, pageable->name) + " is host memory that the GPU cannot reach, while " +
                     (index >= 0             ? on_device->name + (" is on GPU " + std::to_string(index))
                      : on_device != nullptr ? on_device->name + std::string(" is managed memory")
                      : stream               ? "a stream is given"
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
  if (int const of = stream ? backend->device_of(stream->handle()) : -1; of >= 0 && of != device->device()) {
    throw UsageError(quoted(operation, "the stream is of GPU ") + std::to_string(of) + ", must be of GPU " +
                     std::to_string(device->device()) + ", the communicator's");
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
  std::unique_lock const held(mutex_);
  throw_if_failed();
  std::size_t bytes = 0;
  for (auto const& copy : copies) bytes += copy.bytes;
  auto* const to = device->host_memory(bytes);
  try {
    auto const behind = stream ? Submission::Behind::stream : Submission::Behind::nothing;
    submission_.run(behind,
                    [&] { device->fetch(copies, to, stream ? std::optional(stream->handle()) : std::nullopt); });
    Backoff backoff(eagerness);
    auto const deadline = std::chrono::steady_clock::now() + options.timeout;
    while (!device->has_fetched()) {
      device->engine().progress();  // for an error of the GPU
      if (!backoff.idle()) continue;
      look_after();
      throw_if_failed();
      if (std::chrono::steady_clock::now() <= deadline) continue;
      throw TimeoutError("davit: route: choices did not come from the GPU within " +
                             std::to_string(options.timeout.count()) + " ms" + where(number()),
                         rank);
    }
  } catch (...) {
    // The copies are still on their way to this memory.
    if (usable()) fail_by("route", number());
    throw;
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
    auto const enqueued = call;
    enqueued_.push_back(std::move(call));
    stay_for_others(*enqueued);
  }
  helper().add(*this);
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
      done_.splice(done_.end(), enqueued_, enqueued_.begin());
      any_done_.store(true, std::memory_order_release);
      enqueued_deadline_ = {};
      first_task_ = false;
    }
  } catch (...) {
    fail_by(oldest->phase(), oldest->number);
  }
}

bool CommunicatorState::enqueued_are_done() {
  std::unique_lock const held(mutex_, std::try_to_lock);
  if (!held) return false;
  settle_enqueued();
  return enqueued_.empty();
}

void CommunicatorState::drain() {
  bool const was_usable = usable();
  Backoff backoff(Eagerness::rest);
  auto const deadline = std::chrono::steady_clock::now() + options.timeout;
  while (!enqueued_are_done()) {
    if (!backoff.idle()) continue;
    std::lock_guard const held(mutex_);
    look_after();
    // The deadline of a call runs from where its stream has come to it; here the program's own work has one too.
    if (enqueued_.empty() || enqueued_.front()->has_begun() || std::chrono::steady_clock::now() < deadline) continue;
    auto const late = enqueued_.front()->number;
    auto const text = "davit: the communicator was destroyed, and within " + std::to_string(options.timeout.count()) +
                      " ms no stream came to its call" + where(late);
    fail(rank, late, std::make_exception_ptr(UsageError(text)), text);
  }
  if (!was_usable || usable()) return;
  try {  // a destructor cannot raise it, and the streams run on with rows that never came
    throw_if_failed();
  } catch (std::exception const& error) {
    log(LogLevel::warn, without_prefix(error));
  }
}

void CommunicatorState::let_go() noexcept {
  if (device != nullptr) device->leaving()->sweep();
  if (!any_done_.load(std::memory_order_acquire)) return;
  std::list<std::shared_ptr<Call>> done;  // ends without the lock, which the user's allocator may want
  std::unique_lock const held(mutex_, std::try_to_lock);
  if (!held) return;
  done.swap(done_);
  any_done_.store(false, std::memory_order_relaxed);
}

void CommunicatorState::look_after_enqueued(bool look_for_death) {
  settle_enqueued();
  if (enqueued_.empty()) return;
  auto const oldest = enqueued_.front();
  // The program's own work before it takes as long as it takes.
  if (!oldest->has_begun()) return;
  look_after(*oldest, enqueued_deadline_, look_for_death);
}

/// Nobody but the submitting thread holds the lock, and that one is stuck in the driver.
void CommunicatorState::watch_over() noexcept {
  auto& engine = device->device_engine();
  if (!usable()) {
    static_cast<void>(engine.run_out());
    return;
  }
  auto const seen = submission_.under_way();
  if (!seen) return;
  if (seen->claimed) {
    engine.release_holds();
    return;
  }
  auto const now = std::chrono::steady_clock::now();
  auto const progressed = device->progressed();
  bool const moved = seen->state != seen_submission_ || seen_progressed_ != progressed;
  // The program's own work on the stream comes first, and takes as long as it takes.
  bool const behind_program = seen->behind == Submission::Behind::stream && !device->is_in_a_call();
  if (moved || behind_program) stuck_since_ = now;
  seen_submission_ = seen->state;
  seen_progressed_ = progressed;
  if (now - stuck_since_ < kStuck) return;  // it is just at work
  auto const& held_up = progressed.held_up[0] ? progressed.held_up[0] : progressed.held_up[1];
  auto const trouble = held_up ? mesh->trouble(held_up->peer, number(), true) : std::nullopt;
  if (trouble && device->progressed() != progressed) return;  // what the peer did before has helped
  if (!trouble && now - stuck_since_ < options.timeout) return;
  if (!submission_.claim(*seen)) return;  // it has got through
  int const culprit = trouble ? trouble->culprit : held_up ? held_up->peer : -1;
  auto const text = "davit: the GPU takes no more work: " +
                    (trouble ? trouble->text
                             : "nothing moved for " + std::to_string(options.timeout.count()) + " ms" +
                                   (held_up ? ", waiting for rank " + std::to_string(culprit) : std::string()));
  mesh->set_failed(culprit, number(), text + where(number()));
  submission_.end_with(trouble ? std::make_exception_ptr(PeerError(text, culprit))
                               : std::make_exception_ptr(TimeoutError(text, culprit)));
  engine.release_holds();
}

}  // namespace davit::detail
