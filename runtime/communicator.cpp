// SPDX-License-Identifier: Apache-2.0
#include "davit/communicator.hpp"

#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "davit/error.hpp"
#include "runtime/agree.hpp"
#include "runtime/alltoallv.hpp"
#include "runtime/factory.hpp"
#include "runtime/preparation.hpp"
#include "runtime/run.hpp"
#include "runtime/shared_exchanges.hpp"
#include "transports/topology.hpp"

namespace davit {
namespace {

char const in_place_mark = 0;

detail::CommunicatorState& checked(std::shared_ptr<detail::CommunicatorState> const& state) {
  if (state == nullptr)
    throw UsageError("davit: the communicator is null (default-made, moved from, or split with a negative color)");
  return *state;
}

}  // namespace

void const* const in_place = &in_place_mark;

Communicator::Communicator() noexcept = default;
Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, Options options)
    : state_(detail::make_communicator(std::move(bootstrap), std::move(options))) {}
Communicator::Communicator(std::shared_ptr<detail::CommunicatorState> state) noexcept : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const { return checked(state_).rank; }
int Communicator::size() const { return checked(state_).size; }
std::string const& Communicator::name() const { return checked(state_).options.name; }
Options const& Communicator::options() const { return checked(state_).options; }
bool Communicator::usable() const { return checked(state_).usable(); }
std::uint32_t Communicator::calls() const { return checked(state_).number(); }

Stats Communicator::stats() const {
  auto const held = checked(state_).lock();
  auto stats = state_->stats;
  if (state_->wire != nullptr) {
    auto const sent = state_->wire->sent();
    stats.bytes_wire = sent.payload;
    stats.bytes_wire_headers = sent.headers;
    stats.messages_wire = sent.messages;
  }
  return stats;
}

void Communicator::prepare() {
  // All ranks meet, so that those whose slots do not fit are told to the others.
  auto& state = checked(state_);
  int device = -1;
  bool any_device = false;
  detail::run_blocking(
      state, [&] { return detail::Preparation(state); },
      [&](detail::Preparation const& preparation) {
        device = preparation.device();
        any_device = preparation.any_device();
      });
  if (!any_device) return;
  // Where a GPU cannot be had after all, the others are told.
  detail::run_blocking(state, [&] {
    state.finish_preparation(device);
    return detail::Barrier(state, Operation::prepare);
  });
}

int Communicator::device() const {
  auto const held = checked(state_).lock();
  return state_->device_index();
}

bool Communicator::status() {
  auto& state = checked(state_);
  detail::CommunicatorState::Entry const inside(state);
  bool const done = state.enqueued_are_done();
  state.throw_if_failed();
  return done;
}

void Communicator::barrier() {
  auto& state = checked(state_);
  detail::run_blocking(state, [&] { return detail::Barrier(state); });
}

Communicator Communicator::split(int color, int key) {
  auto& state = checked(state_);
  detail::CommunicatorState::Entry const inside(state);
  auto part =
      state.set_up(Operation::split, [&](Deadline deadline) { return state.bootstrap->split(color, key, deadline); });
  if (part == nullptr) return {};
  auto options = state.options;
  options.name += "/" + std::to_string(color);
  return Communicator(detail::make_communicator(std::move(part), std::move(options), {}, state.backend, state.links));
}

Communicator Communicator::dup() {
  auto copy = split(0, rank());
  return copy;
}

SharedBuffer Communicator::allocate(std::size_t bytes) {
  auto& state = checked(state_);
  detail::CommunicatorState::Entry const inside(state);
  auto const what = "allocate on communicator '" + state.options.name + "'";
  std::optional<Segment> segment;
  struct Place {
    std::uint64_t data;
    std::uint64_t bytes;
  };
  return state.set_up(Operation::allocate, [&](Deadline deadline) {
    auto const places = detail::gather_results(*state.bootstrap, what, deadline, [&] {
      if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
        throw UsageError("davit: allocate: bytes is " + std::to_string(bytes) + ", must be less than 2^63");
      }
      segment.emplace(Segment::create(environment().shm_dir, detail::kSharedHeaderBytes + bytes));
      segment->reserve(0, segment->ticket().bytes);
      auto* const base = segment->mapping().get();
      new (base) detail::SharedHeader{segment->ticket().nonce, 0};
      return Place{reinterpret_cast<std::uint64_t>(base + detail::kSharedHeaderBytes), bytes};
    });
    auto const shared = detail::share(*state.bootstrap, what, state.mesh->nodes(), *segment, {}, deadline);
    auto const held = state.lock();
    state.shared.sweep();
    for (int peer = 0; peer < state.size; ++peer) {
      if (!state.mesh->nodes().is_here(peer)) continue;
      auto const& place = places[static_cast<std::size_t>(peer)];
      state.shared.add(peer, place.data, place.bytes, shared.mappings[static_cast<std::size_t>(peer)]);
    }
    SharedBuffer buffer;
    buffer.data_ = segment->mapping().get() + detail::kSharedHeaderBytes;
    buffer.bytes_ = bytes;
    buffer.owner_ = std::shared_ptr<void>(segment->mapping().get(), [mapping = segment->mapping()](void* base) {
      store_release(static_cast<detail::SharedHeader*>(base)->dropped, 1);  // the peers unmap it at their next chance
    });
    return buffer;
  });
}

void Communicator::alltoallv(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype, void* recv,
                             Counts recv_counts, Counts recv_displs, Dtype recv_dtype) {
  auto& state = checked(state_);
  detail::run_blocking(state, [&] {
    auto const exchange = detail::checked_exchange("alltoallv", state.rank, state.size, send, send_counts, send_displs,
                                                   send_dtype, recv, recv_counts, recv_displs, recv_dtype);
    return detail::Alltoallv(state, detail::side_of(state, "alltoallv", exchange), exchange);
  });
}

void Communicator::alltoallv(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype, void* recv,
                             Counts recv_counts, Counts recv_displs, Dtype recv_dtype, Stream stream) {
  auto& state = checked(state_);
  detail::run_enqueued(state, "alltoallv", stream, [&] {
    auto const exchange = detail::checked_exchange("alltoallv", state.rank, state.size, send, send_counts, send_displs,
                                                   send_dtype, recv, recv_counts, recv_displs, recv_dtype);
    auto& side = detail::side_of(state, "alltoallv", exchange, stream);
    return std::make_shared<detail::OpenAlltoallv>(state, side, std::make_shared<detail::PlanState>(state_, exchange));
  });
}

Request Communicator::ialltoallv(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype, void* recv,
                                 Counts recv_counts, Counts recv_displs, Dtype recv_dtype) {
  auto& state = checked(state_);
  detail::CommunicatorState::Entry const inside(state);
  auto const number = state.take_number();
  auto task = detail::make_or_refuse(state, number, false, [&] {
    detail::check_prepared(state, "ialltoallv");
    auto const exchange = detail::checked_exchange("ialltoallv", state.rank, state.size, send, send_counts, send_displs,
                                                   send_dtype, recv, recv_counts, recv_displs, recv_dtype);
    auto& side = detail::side_of(state, "ialltoallv", exchange);
    return std::make_shared<detail::OpenAlltoallv>(state, side, std::make_shared<detail::PlanState>(state_, exchange));
  });
  task->number = number;
  state.open(task);
  return Request(std::move(task));
}

Plan Communicator::alltoallv_init(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype,
                                  void* recv, Counts recv_counts, Counts recv_displs, Dtype recv_dtype) {
  auto& state = checked(state_);
  std::shared_ptr<detail::PlanState> plan;
  detail::run_blocking(state, [&] {
    auto const exchange = detail::checked_exchange("alltoallv_init", state.rank, state.size, send, send_counts,
                                                   send_displs, send_dtype, recv, recv_counts, recv_displs, recv_dtype);
    static_cast<void>(detail::side_of(state, "alltoallv_init", exchange));
    plan = std::make_shared<detail::PlanState>(state_, exchange);
    return detail::SizeAgreement(state, plan->exchange.view());
  });
  return Plan(std::move(plan));
}

void Communicator::allgatherv(void const* send, std::int64_t send_count, Dtype send_dtype, void* recv,
                              Counts recv_counts, Counts recv_displs, Dtype recv_dtype, std::optional<Stream> stream) {
  auto& state = checked(state_);
  detail::run_either<detail::Allgatherv>(state, "allgatherv", stream, [&](auto const& make) {
    auto const blocks =
        detail::checked_blocks("allgatherv", "recv", state.size, recv, recv_counts, recv_displs, recv_dtype, true);
    bool const in_place_here = send == in_place;
    detail::NamedBuffer const buffers[] = {{"send", in_place_here ? nullptr : send}, {"recv", recv}};
    auto& side = state.side_for("allgatherv", buffers, stream);
    if (in_place_here) return make(state, side, nullptr, std::uint64_t{0}, recv_dtype, blocks);
    if (send_count < 0) {
      throw UsageError("davit: allgatherv: send_count is " + std::to_string(send_count) + ", must be 0 or more");
    }
    std::int64_t const zero = 0;
    auto const own = detail::checked_blocks("allgatherv", "send", 1, const_cast<void*>(send), {&send_count, 1},
                                            {&zero, 1}, send_dtype, false);
    if (own.bytes(0) != blocks.bytes(state.rank)) {
      throw UsageError("davit: allgatherv: send_count is " + detail::bytes_text(own.bytes(0), send_dtype) +
                       ", must be as long as this rank's block of recv, " +
                       detail::bytes_text(blocks.bytes(state.rank), recv_dtype));
    }
    return make(state, side, own.data, own.bytes(0), send_dtype, blocks);
  });
}

void Communicator::reduce_scatterv(void const* send, void* recv, Counts counts, Dtype dtype,
                                   std::optional<Stream> stream) {
  auto& state = checked(state_);
  detail::run_either<detail::ReduceScatterv>(state, "reduce_scatterv", stream, [&](auto const& make) {
    if (!is_summable(dtype)) {
      throw UsageError(std::string("davit: reduce_scatterv: dtype is ") + name_of(dtype) +
                       ", must be f32, f16 or bf16");
    }
    std::vector<std::int64_t> displs(counts.size());
    std::int64_t total = 0;
    for (std::size_t owner = 0; owner < counts.size(); ++owner) {
      if (counts[owner] < 0) {
        throw UsageError("davit: reduce_scatterv: counts[" + std::to_string(owner) + "] is " +
                         std::to_string(counts[owner]) + ", must be 0 or more");
      }
      displs[owner] = total;
      if (__builtin_add_overflow(total, counts[owner], &total)) {
        throw UsageError("davit: reduce_scatterv: the sum of counts is above 2^63 - 1");
      }
    }
    auto const input =
        detail::checked_blocks("reduce_scatterv", "send", state.size, send == in_place ? recv : const_cast<void*>(send),
                               counts, displs, dtype, false);
    if (recv == in_place) throw UsageError("davit: reduce_scatterv: recv is in_place, only send may be");
    auto* const out = static_cast<std::byte*>(recv);
    if (out == nullptr && counts[static_cast<std::size_t>(state.rank)] > 0) {
      throw UsageError("davit: reduce_scatterv: recv is null, but counts[" + std::to_string(state.rank) + "] is not 0");
    }
    detail::NamedBuffer const buffers[] = {{"send", input.data}, {"recv", recv}};
    auto& side = state.side_for("reduce_scatterv", buffers, stream);
    for (auto const& buffer : buffers) state.check_elements("reduce_scatterv", side, buffer, dtype);
    return make(state, side, input.data, out, counts, dtype);
  });
}

MemoryUse memory_use(int ranks, Options const& options) {
  if (ranks < 1) throw UsageError("davit: memory_use: ranks is " + std::to_string(ranks) + ", must be 1 or more");
  auto const geometry =
      detail::geometry_of(ranks, options, Topology::of_this_machine().machine().last_level_cache_bytes);
  return {geometry.control_bytes(), geometry.slots_bytes(), geometry.slot_bytes, static_cast<int>(geometry.slots / 2)};
}

// --- Handles of work in flight.

void Request::wait() {
  auto const task = std::exchange(task_, nullptr);
  if (task == nullptr) return;
  if (!task->done.load(std::memory_order_acquire)) {
    if (auto const home = task->home.lock()) home->wait(*task);
  }
  if (task->error) std::rethrow_exception(task->error);
}

bool Request::test() {
  if (task_ == nullptr) return true;
  if (!task_->done.load(std::memory_order_acquire)) {
    if (auto const home = task_->home.lock()) home->poke();
    if (!task_->done.load(std::memory_order_acquire)) return false;
  }
  wait();
  return true;
}

void Plan::start() {
  if (state_ == nullptr) throw UsageError("davit: start: the plan is null (default-made or moved from)");
  if (request_.active()) throw UsageError("davit: start: the plan's last start was not waited for");
  auto const state = state_->comm.lock();
  if (state == nullptr) throw UsageError("davit: start: the plan's communicator is gone");
  detail::CommunicatorState::Entry const inside(*state);
  auto const number = state->take_number();
  auto task = detail::make_or_refuse(*state, number, false, [&] {
    return std::make_shared<detail::OpenAlltoallv>(*state, detail::side_of(*state, "start", state_->exchange.view()),
                                                   state_);
  });
  task->number = number;
  state->open(task);
  request_ = Request(std::move(task));
}

void Plan::wait() { request_.wait(); }
bool Plan::test() { return request_.test(); }

}  // namespace davit
