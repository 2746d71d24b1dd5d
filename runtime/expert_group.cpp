// SPDX-License-Identifier: Apache-2.0
#include "davit/expert_group.hpp"

#include <utility>

#include "davit/error.hpp"
#include "runtime/combine.hpp"
#include "runtime/dispatch.hpp"
#include "runtime/routing_state.hpp"
#include "runtime/run.hpp"

namespace davit {
namespace {

void check_layout(char const* operation, Layout layout, std::int64_t alignment) {
  if (static_cast<unsigned>(layout) > static_cast<unsigned>(Layout::expert_slots)) {
    throw UsageError("davit: " + std::string(operation) + ": layout is " + std::to_string(static_cast<int>(layout)) +
                     ", must be one of davit::Layout");
  }
  if (alignment < 1 || alignment > INT32_MAX) {
    throw UsageError("davit: " + std::string(operation) + ": alignment is " + std::to_string(alignment) +
                     ", must be 1 to " + std::to_string(INT32_MAX));
  }
}

template <class Enum>
void check_enumerator(char const* operation, char const* name, char const* type, Enum value, Enum last) {
  if (static_cast<unsigned>(value) <= static_cast<unsigned>(last)) return;
  throw UsageError("davit: " + std::string(operation) + ": " + name + " is " + std::to_string(static_cast<int>(value)) +
                   ", must be one of davit::" + type);
}

/// @throws UsageError for a routing that is null, or of another group.
detail::RoutingState& checked(char const* operation, std::shared_ptr<detail::GroupState> const& group,
                              std::shared_ptr<detail::RoutingState> const& routing) {
  if (routing == nullptr) {
    throw UsageError("davit: " + std::string(operation) + ": the routing is null (default-made or moved from)");
  }
  if (routing->group != group) {
    throw UsageError("davit: " + std::string(operation) + ": the routing is of expert group " +
                     std::to_string(routing->group->serial) + ", must be of expert group " +
                     std::to_string(group->serial));
  }
  return *routing;
}

detail::GroupState& checked(std::shared_ptr<detail::GroupState> const& group) {
  if (group == nullptr) throw UsageError("davit: the expert group is moved from");
  return *group;
}

detail::RoutingState& checked(std::shared_ptr<detail::RoutingState> const& routing) {
  if (routing == nullptr) throw UsageError("davit: the routing is null (default-made or moved from)");
  return *routing;
}

/// @param choices canonical ones, made once the call has its number.
template <class Choose>
std::shared_ptr<detail::RoutingState> route_any(std::shared_ptr<detail::GroupState> const& group,
                                                Choose const& choose) {
  auto& state = checked(group);
  detail::Choices choices;
  detail::run_blocking(*state.comm, [&] {
    auto const limit = state.options.routings;
    if (state.held[state.next_routing % static_cast<std::uint64_t>(limit)].load(std::memory_order_acquire)) {
      throw UsageError("davit: route: " + std::to_string(limit) +
                       " routings ago is still alive, and ExpertGroupOptions::routings is " + std::to_string(limit) +
                       ": at most that many may be alive at once");
    }
    choices = choose(state);
    return detail::Route(state, choices);
  });
  return std::make_shared<detail::RoutingState>(group, state.next_routing++);
}

/// Choices from the GPU.
template <class Id>
detail::Choices fetched(detail::GroupState const& state, DeviceChoices const& choices, std::optional<Stream> stream) {
  auto const entries = static_cast<std::size_t>(choices.tokens * state.options.top_k);
  auto const* const at = state.comm->fetch_from_device(
      {{nullptr, static_cast<std::byte const*>(choices.ids), entries * sizeof(Id)},
       {nullptr, reinterpret_cast<std::byte const*>(choices.weights), entries * sizeof(float)}},
      stream);
  return detail::canonical_choices<Id>(state.options, {reinterpret_cast<Id const*>(at), entries},
                                       {reinterpret_cast<float const*>(at + entries * sizeof(Id)), entries});
}

detail::Choices choices_from_device(detail::GroupState& state, DeviceChoices const& choices,
                                    std::optional<Stream> stream) {
  if (choices.id_dtype != i32 && choices.id_dtype != i64) {
    throw UsageError(std::string("davit: route: id_dtype is ") + name_of(choices.id_dtype) + ", must be i32 or i64");
  }
  if (choices.tokens < 0 || choices.tokens > state.options.max_tokens) {
    throw UsageError("davit: route: tokens is " + std::to_string(choices.tokens) + ", must be 0 to max_tokens " +
                     std::to_string(state.options.max_tokens));
  }
  if (choices.tokens == 0) return detail::canonical_choices<std::int32_t>(state.options, {}, {});
  if (choices.ids == nullptr || choices.weights == nullptr) {
    throw UsageError(std::string("davit: route: ") + (choices.ids == nullptr ? "ids" : "weights") +
                     " is null, but there are " + std::to_string(choices.tokens) + " tokens");
  }
  detail::NamedBuffer const buffers[] = {{"ids", choices.ids}, {"weights", choices.weights}};
  static_cast<void>(state.comm->side_for("route", buffers, stream, true));
  return choices.id_dtype == i32 ? fetched<std::int32_t>(state, choices, stream)
                                 : fetched<std::int64_t>(state, choices, stream);
}

/// Row widths of x and of the payloads, checked.
std::vector<detail::RowPayload> sources(detail::RoutingState const& routing, void const* x,
                                        DispatchOptions const& options) {
  auto const& group = routing.group->options;
  auto const row_bytes =
      options.row_bytes != 0 ? options.row_bytes : static_cast<std::size_t>(group.hidden) * size_of(group.dtype);
  if (options.payloads.size() > detail::kMostPayloads) {
    throw UsageError("davit: dispatch: payloads has " + std::to_string(options.payloads.size()) +
                     " arrays, must have at most " + std::to_string(detail::kMostPayloads));
  }
  std::vector<detail::RowPayload> all{{static_cast<std::byte const*>(x), nullptr, row_bytes}};
  for (auto const& payload : options.payloads) {
    all.push_back({static_cast<std::byte const*>(payload.data), nullptr, payload.row_bytes});
  }
  for (std::size_t index = 0; index < all.size(); ++index) {
    auto const name = index == 0 ? std::string("x") : "payloads[" + std::to_string(index - 1) + "]";
    if (all[index].row_bytes == 0 || all[index].row_bytes > std::size_t{INT32_MAX}) {
      throw UsageError("davit: dispatch: row_bytes of " + name + " is " + std::to_string(all[index].row_bytes) +
                       ", must be 1 to " + std::to_string(INT32_MAX));
    }
    if (all[index].from == nullptr && routing.tokens > 0) {
      throw UsageError("davit: dispatch: " + name + " is null, but the routing has " + std::to_string(routing.tokens) +
                       " tokens");
    }
  }
  return all;
}

/// The caller's own memory for the rows.
void put_into(std::vector<detail::RowPayload>& payloads, ReceiveInto const& into, std::size_t rows) {
  if (into.payloads.size() + 1 != payloads.size()) {
    throw UsageError("davit: dispatch: ReceiveInto::payloads has " + std::to_string(into.payloads.size()) +
                     " arrays, must have " + std::to_string(payloads.size() - 1));
  }
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    payloads[i].to = static_cast<std::byte*>(i == 0 ? into.rows : into.payloads[i - 1]);
    if (payloads[i].to == nullptr && rows > 0) {
      throw UsageError("davit: dispatch: ReceiveInto has a null array, but " + std::to_string(rows) + " rows come");
    }
  }
}

detail::Side& side_of(detail::CommunicatorState& comm, std::vector<detail::RowPayload> const& payloads,
                      DispatchOptions const& options) {
  std::vector<detail::NamedBuffer> buffers;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    buffers.push_back({i == 0 ? "x" : "a payload", payloads[i].from});
    buffers.push_back({"ReceiveInto", payloads[i].to});
  }
  auto& side = comm.side_for("dispatch", buffers, options.stream, options.space == Space::device);
  if (options.space == Space::host && &side != &comm.host) {
    throw UsageError("davit: dispatch: space is host, but the rows are on a GPU");
  }
  return side;
}

constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

}  // namespace

ExpertGroup::ExpertGroup(Communicator& comm, ExpertGroupOptions const& options) {
  if (comm.state_ == nullptr) throw UsageError("davit: expert group: the communicator is null");
  state_ = std::make_shared<detail::GroupState>(comm.state_, options);
}
ExpertGroup::ExpertGroup(ExpertGroup&&) noexcept = default;
ExpertGroup& ExpertGroup::operator=(ExpertGroup&&) noexcept = default;
ExpertGroup::~ExpertGroup() = default;

ExpertGroupOptions const& ExpertGroup::options() const { return checked(state_).options; }
std::int64_t ExpertGroup::local_experts() const { return checked(state_).experts_of(state_->comm->rank); }
std::int64_t ExpertGroup::first_expert() const { return checked(state_).first_expert(state_->comm->rank); }
int ExpertGroup::owner_of(std::int64_t expert) const {
  auto const& state = checked(state_);
  if (expert < 0 || expert >= state.options.experts) {
    throw UsageError("davit: owner_of: expert is " + std::to_string(expert) + ", must be 0 to " +
                     std::to_string(state.options.experts - 1));
  }
  return state.owner_of(expert);
}

Routing ExpertGroup::route(std::span<std::int32_t const> ids, std::span<float const> weights) {
  return Routing(route_any(
      state_, [&](detail::GroupState const& state) { return detail::canonical_choices(state.options, ids, weights); }));
}
Routing ExpertGroup::route(std::span<std::int64_t const> ids, std::span<float const> weights) {
  return Routing(route_any(
      state_, [&](detail::GroupState const& state) { return detail::canonical_choices(state.options, ids, weights); }));
}
Routing ExpertGroup::route(DeviceChoices const& choices, std::optional<Stream> stream) {
  return Routing(
      route_any(state_, [&](detail::GroupState& state) { return choices_from_device(state, choices, stream); }));
}

Received ExpertGroup::dispatch(Routing& routing, void const* x, DispatchOptions const& options) {
  return dispatch_to(routing, x, nullptr, options);
}

Received ExpertGroup::dispatch(Routing& routing, void const* x, ReceiveInto const& into,
                               DispatchOptions const& options) {
  return dispatch_to(routing, x, &into, options);
}

Received ExpertGroup::dispatch_to(Routing& routing, void const* x, ReceiveInto const* into,
                                  DispatchOptions const& options) {
  auto& group = checked(state_);
  Received received;
  detail::run_either<detail::Dispatch>(*group.comm, "dispatch", options.stream, [&](auto const& make) {
    auto& state = checked("dispatch", state_, routing.state_);
    check_layout("dispatch", options.layout, options.alignment);
    check_enumerator("dispatch", "space", "Space", options.space, Space::device);
    auto payloads = sources(state, x, options);
    auto plan =
        state.plan(options.layout, options.layout == Layout::by_expert ? options.alignment : 1, options.global_ids);
    auto const rows = static_cast<std::size_t>(plan->rows);
    if (into != nullptr) put_into(payloads, *into, rows);
    auto& side = side_of(*group.comm, payloads, options);
    if (into == nullptr) {
      std::size_t bytes = 0;
      for (auto const& payload : payloads) bytes += aligned(rows * payload.row_bytes);
      received.owner_ = group.pool_for(side)->take(bytes);
      auto* at = static_cast<std::byte*>(received.owner_.get());
      for (auto& payload : payloads) {
        payload.to = at;
        at += aligned(rows * payload.row_bytes);
      }
    }
    received.data_ = payloads.front().to;
    received.row_bytes_ = payloads.front().row_bytes;
    for (std::size_t i = 1; i < payloads.size(); ++i) received.payloads_.push_back(payloads[i].to);
    received.plan_ = plan;
    auto rows_owner = received.owner_;
    if (options.stream && rows_owner != nullptr) {
      received.owner_ = group.comm->device->for_stream(options.stream->handle(), rows_owner);
    }
    return make(side, routing.state_, std::move(plan), std::move(payloads), std::move(rows_owner));
  });
  routing.state_->last_layout = options.layout;
  routing.state_->last_alignment = received.plan_->alignment;
  return received;
}

void ExpertGroup::combine(Routing& routing, void const* rows, void* out, CombineOptions const& options) {
  auto& group = checked(state_);
  detail::run_either<detail::Combine>(*group.comm, "combine", options.stream, [&](auto const& make) {
    auto& state = checked("combine", state_, routing.state_);
    if (!options.layout && !state.last_layout) {
      throw UsageError("davit: combine: the routing was not dispatched yet; name the layout of the rows");
    }
    auto const layout = options.layout.value_or(state.last_layout.value_or(Layout::by_expert));
    auto const alignment = options.alignment.value_or(state.last_layout == layout ? state.last_alignment : 1);
    check_layout("combine", layout, alignment);
    bool const by_source = layout == Layout::by_source;
    auto const weighting = options.weighting.value_or(by_source ? Weighting::by_caller : Weighting::at_combine);
    check_enumerator("combine", "weighting", "Weighting", weighting, Weighting::by_caller);
    check_enumerator("combine", "reduce", "Reduce", options.reduce, Reduce::by_k);
    if (by_source && weighting != Weighting::by_caller) {
      throw UsageError("davit: combine: weighting is at_combine, must be by_caller for the layout by_source");
    }
    if (by_source && options.reduce == Reduce::by_k) {
      throw UsageError("davit: combine: reduce is by_k, must be grouped for the layout by_source");
    }
    auto const out_dtype = options.out_dtype.value_or(group.options.dtype);
    if (!is_summable(out_dtype)) {
      throw UsageError(std::string("davit: combine: out_dtype is ") + name_of(out_dtype) +
                       ", must be f32, f16 or bf16");
    }
    auto const plan = state.plan(layout, layout == Layout::by_expert ? alignment : 1, false);
    if (rows == nullptr && !plan->moves.empty()) {
      throw UsageError("davit: combine: rows is null, but the layout has " + std::to_string(plan->rows) + " rows");
    }
    if (out == nullptr && state.tokens > 0) {
      throw UsageError("davit: combine: out is null, but the routing has " + std::to_string(state.tokens) + " tokens");
    }
    detail::NamedBuffer const buffers[] = {{"rows", rows}, {"out", out}, {"bias", options.bias}};
    auto& side = group.comm->side_for("combine", buffers, options.stream);
    for (auto const& buffer : buffers) {
      group.comm->check_elements("combine", side, buffer, buffer.data == rows ? group.options.dtype : out_dtype);
    }
    return make(side, routing.state_, plan,
                detail::CombineArguments{static_cast<std::byte const*>(rows), static_cast<std::byte*>(out),
                                         static_cast<std::byte const*>(options.bias), out_dtype,
                                         weighting == Weighting::at_combine, options.reduce == Reduce::by_k});
  });
}

std::int64_t Routing::tokens() const { return checked(state_).tokens; }

std::int64_t Routing::rows(Layout layout, std::int64_t alignment) const {
  auto& state = checked(state_);
  check_layout("rows", layout, alignment);
  return state.plan(layout, layout == Layout::by_expert ? alignment : 1, false)->rows;
}

ReceivedCounts Routing::counts(Layout layout, std::int64_t alignment) const {
  auto& state = checked(state_);
  check_layout("counts", layout, alignment);
  return state.plan(layout, layout == Layout::by_expert ? alignment : 1, false)->view();
}

std::byte* Received::payload(std::size_t index) const {
  if (index < payloads_.size()) return payloads_[index];
  throw UsageError("davit: payload: index is " + std::to_string(index) + ", must be below " +
                   std::to_string(payloads_.size()) + ", the payloads of the dispatch");
}

std::int64_t Received::rows() const { return plan_ == nullptr ? 0 : plan_->rows; }
std::span<std::int32_t const> Received::ids() const {
  return plan_ == nullptr ? std::span<std::int32_t const>{} : plan_->choices().ids;
}
std::span<float const> Received::weights() const {
  return plan_ == nullptr ? std::span<float const>{} : plan_->choices().weights;
}
ReceivedCounts Received::counts() const { return plan_ == nullptr ? ReceivedCounts{} : plan_->view(); }
Layout Received::layout() const { return plan_ == nullptr ? Layout::by_expert : plan_->layout; }

}  // namespace davit
