// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator_state.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/alltoallv.hpp"
#include "runtime/log.hpp"
#include "runtime/progress.hpp"
#include "runtime/refusal.hpp"
#include "runtime/slot_binding.hpp"
#include "runtime/watcher.hpp"
#include "transports/wait.hpp"

namespace davit::detail {
namespace {

// A death must be seen within 100 ms; each look is a system call a peer.
constexpr auto kDeathLookInterval = std::chrono::milliseconds(20);
// How long a GPU may take to let go of a failed call's buffers.
constexpr auto kRunOut = std::chrono::seconds(10);

/// What was met in a phase, with its name before it.
std::string said_in(std::string const& phase, std::exception const& error) {
  return "davit: " + phase + ": " + std::string(without_prefix(error));
}

}  // namespace

CommunicatorState::CommunicatorState(std::shared_ptr<Bootstrap> bootstrap_in, Options options_in,
                                     std::unique_ptr<Wire> wire_in, LinkMaker links_in, std::unique_ptr<Mesh> mesh_in,
                                     std::unique_ptr<Engine> host_engine, DeviceBackend* backend_in, bool direct_in,
                                     Eagerness eagerness_in, std::uint32_t first_number, PlacementPlan plan_in,
                                     std::optional<PciAddress> planned_gpu_in)
    : bootstrap(std::move(bootstrap_in)),
      options(std::move(options_in)),
      wire(std::move(wire_in)),
      links(links_in),
      mesh(std::move(mesh_in)),
      host(std::move(host_engine)),
      backend(backend_in),
      direct(direct_in),
      eagerness(eagerness_in),
      plan(std::move(plan_in)),
      planned_gpu(planned_gpu_in),
      rank(bootstrap->rank()),
      size(bootstrap->size()),
      number_(first_number - 1) {}

CommunicatorState::~CommunicatorState() {
  drain();
  helper().remove(*this);
  helper_.reset();
  Watcher::of_process().remove(*this);
  if (!queue_.empty() && usable()) {
    auto const text = "davit: the communicator was destroyed with open requests" + where(queue_.front()->number);
    fail(rank, queue_.front()->number, std::make_exception_ptr(UsageError(text)), text);
  }
  mesh->set_closed();
  part_from_wire();
  let_go();
}

CommunicatorState::Entry::Entry(CommunicatorState& state) : state_(state) {
  if (state.inside_.exchange(true, std::memory_order_acquire)) {
    throw UsageError("davit: two threads call on communicator '" + state.options.name +
                     "' at once; one at a time may, or give each thread its own (dup)");
  }
  try {
    state.check_thread();
    state.throw_if_failed();
  } catch (...) {
    state.inside_.store(false, std::memory_order_release);
    throw;
  }
  state.let_go();
}

void CommunicatorState::throw_if_failed() {
  if (!usable()) std::rethrow_exception(failure_);
}

std::string CommunicatorState::where(std::uint32_t number) const {
  return " [communicator '" + options.name + "', call " + std::to_string(number) + "]";
}

void CommunicatorState::prepare() {
  if (mesh->prepared()) return;
  SlotBinding binding(plan, rank, mesh->geometry());
  mesh->prepare([&](std::byte* slots, std::size_t bytes, std::uint32_t site) { binding.bind(slots, bytes, site); });
  binding.report(options.name);
}

void CommunicatorState::run(Task& task) {
  {
    std::unique_lock const held(mutex_);
    throw_if_failed();  // since it was looked at last, the helper thread may have found something
    queue_.push_back(std::shared_ptr<Task>(std::shared_ptr<Task>(), &task));  // borrowed: it outlives the wait
    wait_until_done(task);
    stay_for_others(task);
  }
  if (!usable() && task.uses_device()) leave_buffers();
}

/// The caller takes its buffers back, so a GPU must not be at them any more.
void CommunicatorState::leave_buffers() noexcept {
  if (device->device_engine().run_out_within(kRunOut)) return;
  log(LogLevel::error, "a GPU is still busy with buffers of a call that has failed [communicator '" + options.name +
                           "']; do not use them again");
}

void CommunicatorState::open(std::shared_ptr<Task> task) {
  {
    std::unique_lock const held(mutex_);
    throw_if_failed();
    bool const alone = queue_.empty();
    queue_.push_back(std::move(task));
    if (alone) advance_head();  // so that the card is out before the program goes elsewhere
  }
  helper().add(*this);
}

void CommunicatorState::wait(Task& task) {
  check_thread();
  Backoff backoff(eagerness);
  while (!task.done.load(std::memory_order_acquire)) {
    std::unique_lock const held(mutex_, std::try_to_lock);
    if (held) {
      wait_until_done(task);
      stay_for_others(task);
    } else {
      backoff.idle();  // another thread is at it: the helper, or a call behind this one
    }
  }
  if (!usable() && task.uses_device()) leave_buffers();
}

CommunicatorState::Poked CommunicatorState::poke() noexcept {
  bool moved = advance_wire();
  std::unique_lock const held(mutex_, std::try_to_lock);
  if (!held) return moved ? Poked::moved : Poked::waiting;
  settle_enqueued();
  while (!queue_.empty() && advance_head()) moved = true;
  bool const is_relay = wire != nullptr && wire->has_own_thread();  // for others, at any time
  if (queue_.empty() && enqueued_.empty() && !is_relay) return Poked::idle;
  if (!moved) look_after();
  return moved ? Poked::moved : Poked::waiting;
}

/// Under the lock.
void CommunicatorState::wait_until_done(Task& task) {
  std::optional<Progress::Waiting> waiting;
  if (wire != nullptr) waiting.emplace(Progress::of_process());  // the helper would only be in the way
  Backoff backoff(eagerness);
  while (!task.done.load(std::memory_order_relaxed)) {
    bool const moved = advance_head();
    if (task.done.load(std::memory_order_relaxed)) break;  // what is left to send goes with the next call's
    if (advance_wire() || moved) {
      backoff.moved();
      continue;
    }
    if (!backoff.idle()) continue;
    if (!waiting) waiting.emplace(Progress::of_process());
    bootstrap->progress();
    if (Progress::of_process().poke_all(*this)) backoff.moved();
    look_after();
  }
}

/// Under the lock. @returns whether the task at the head got on.
bool CommunicatorState::advance_head() {
  auto& task = *queue_.front();
  try {
    if (!task.advance()) {
      if (task.moved()) task.deadline = {};  // it bounds each wait, not the whole of a long transfer
      return task.moved();
    }
    finish_head(task.error);
  } catch (...) {
    fail_by(task.phase(), task.number);
  }
  return true;
}

void CommunicatorState::fail_by(std::string const& phase, std::uint32_t number) noexcept {
  auto const text_of = [&](std::exception const& error) {
    std::string text = error.what();
    bool const is_whole = text.starts_with("davit: " + phase + ": ") && text.ends_with(']');
    return is_whole ? text : said_in(phase, error) + where(number);
  };
  try {
    throw;
  } catch (PeerError const& error) {
    auto const text = text_of(error);
    fail(error.rank(), number, std::make_exception_ptr(PeerError(text, error.rank())), text);
  } catch (SystemError const& error) {
    auto const text = text_of(error);
    fail(rank, number, std::make_exception_ptr(SystemError(text)), text);
  } catch (std::exception const& error) {
    fail(rank, number, std::current_exception(), text_of(error));
  }
}

void CommunicatorState::finish_head(std::exception_ptr error) noexcept {
  auto const task = std::move(queue_.front());
  queue_.pop_front();
  first_task_ = false;
  if (usable() && !task->settled) mesh->settle(task->number);
  task->error = std::move(error);
  task->done.store(true, std::memory_order_release);
}

/// Under the lock: deadline, failed, closed and dead peers of the oldest call on a stream and of the task at the head.
void CommunicatorState::look_after() {
  auto const now = std::chrono::steady_clock::now();
  bool const look_for_death = now >= next_death_look_;
  if (look_for_death) next_death_look_ = now + kDeathLookInterval;
  if (device != nullptr) {
    auto progressed = device->progressed();
    // The program's own work on a stream takes as long as it takes, also for the calls behind it.
    bool const behind_program = !enqueued_.empty() && !enqueued_.front()->has_begun();
    bool const moved = progressed_ != progressed;
    if (behind_program || moved) enqueued_deadline_ = {};
    if (!queue_.empty() && (moved || (behind_program && queue_.front()->waits_for_streams()))) {
      queue_.front()->deadline = {};
    }
    progressed_ = progressed;
  }
  look_after_wire();
  look_after_enqueued(look_for_death);
  if (!queue_.empty()) look_after(*queue_.front(), queue_.front()->deadline, look_for_death);
}

void CommunicatorState::look_after(Task const& task, std::chrono::steady_clock::time_point& deadline,
                                   bool look_for_death) {
  auto const now = std::chrono::steady_clock::now();
  auto const timeout = first_task_ ? options.first_timeout.value_or(options.timeout) : options.timeout;
  // Set at the first look, not at the start: most calls end before anybody needs to know the time.
  if (deadline == std::chrono::steady_clock::time_point{}) deadline = now + timeout;
  awaited_.clear();
  task.awaited(awaited_);
  for (int const peer : awaited_) {
    auto const trouble = mesh->trouble(peer, task.number, look_for_death);
    if (!trouble) continue;
    // What it did before is visible now; if even that does not help, nothing will.
    settle_enqueued();
    if (!queue_.empty() && advance_head()) return;
    if (!usable() || (queue_.empty() && enqueued_.empty())) return;
    std::vector<int> still;
    task.awaited(still);
    if (std::find(still.begin(), still.end(), peer) == still.end()) return;
    auto const text = "davit: " + task.phase() + ": " + trouble->text + where(task.number);
    fail(trouble->culprit, task.number, std::make_exception_ptr(PeerError(text, trouble->culprit)), text);
    return;
  }
  if (now < deadline) return;
  std::sort(awaited_.begin(), awaited_.end());
  awaited_.erase(std::unique(awaited_.begin(), awaited_.end()), awaited_.end());
  int const missing = awaited_.empty() ? -1 : awaited_.front();
  auto const text = "davit: " + task.phase() + " passed its deadline of " + std::to_string(timeout.count()) + " ms" +
                    waiting_for(awaited_) + where(task.number);
  fail(missing, task.number, std::make_exception_ptr(TimeoutError(text, missing)), text);
}

void CommunicatorState::fail(int culprit, std::uint32_t number, std::exception_ptr error,
                             std::string const& text) noexcept {
  if (usable()) {
    failure_ = std::move(error);
    mesh->set_failed(culprit, number, text);
    failed_.store(true, std::memory_order_release);
    host.engine().abandon();
    if (device != nullptr) device->engine().abandon();
  }
  if (device != nullptr && !enqueued_.empty()) device->take_over(enqueued_);
  while (!queue_.empty()) finish_head(failure_);
  advance_wire();  // so that the other nodes hear of it
}

void CommunicatorState::meet(Operation operation) {
  Barrier meeting(*this, operation);
  meeting.number = take_number();
  run(meeting);
  if (meeting.error) std::rethrow_exception(meeting.error);
}

void CommunicatorState::fail_set_up(Operation operation, TimeoutError const& error) {
  auto const text = said_in(name_of(operation), error) + where(number());
  {
    std::lock_guard const held(mutex_);
    fail(error.rank(), number(), std::make_exception_ptr(TimeoutError(text, error.rank())), text);
  }
  throw TimeoutError(text, error.rank());
}

void CommunicatorState::refuse(std::uint32_t number, char const* text, bool blocking) {
  auto refusal = std::make_shared<Refusal>(*this, number, text);
  if (blocking) {
    run(*refusal);
  } else {
    open(std::move(refusal));
  }
}

}  // namespace davit::detail
