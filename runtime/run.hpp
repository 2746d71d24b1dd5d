// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the public interface turns arguments into a call that runs: blocking, or on a stream.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "davit/error.hpp"
#include "runtime/call.hpp"

namespace davit::detail {

/// Makes a task of call `number`; what the making throws is told to the peers as a refusal, and thrown here.
template <class Make>
auto make_or_refuse(CommunicatorState& state, std::uint32_t number, bool blocking, Make const& make) {
  try {
    return make();
  } catch (std::exception const& error) {
    state.refuse(number, error.what(), blocking);
    throw;
  }
}

/// @throws UsageError for a call that needs the slots before they are there.
inline void check_prepared(CommunicatorState const& state, char const* operation) {
  if (state.mesh->prepared()) return;
  throw UsageError("davit: " + std::string(operation) +
                   ": the communicator is not prepared; call prepare() or a blocking collective first");
}

/// A blocking collective: takes a number, prepares, makes the call, runs it to its end. @param make returns it.
/// @param after is given the call, once it is complete and right.
template <class Make, class After>
void run_blocking(CommunicatorState& state, Make const& make, After const& after) {
  CommunicatorState::Entry const inside(state);
  auto const number = state.take_number();
  auto call = make_or_refuse(state, number, true, [&] {
    state.prepare();
    return make();
  });
  call.number = number;
  state.run(call);
  if (call.error) std::rethrow_exception(call.error);
  after(call);
}
template <class Make>
void run_blocking(CommunicatorState& state, Make const& make) {
  run_blocking(state, make, [](auto const&) {});
}

/// An enqueued collective. @param make returns a shared_ptr to a Call that owns, or keeps alive, what it refers to.
template <class Make>
void run_enqueued(CommunicatorState& state, char const* operation, Stream stream, Make const& make) {
  CommunicatorState::Entry const inside(state);
  auto const number = state.take_number();
  auto call = make_or_refuse(state, number, true, [&] {
    check_prepared(state, operation);
    return make();
  });
  call->number = number;
  call->put_on(stream);
  state.enqueue(std::move(call));
}

/// One or the other. @param make is given a function that makes a T from its constructor's arguments, and returns what
/// that returns.
template <class T, class Make>
void run_either(CommunicatorState& state, char const* operation, std::optional<Stream> stream, Make const& make) {
  if (stream) {
    run_enqueued(state, operation, *stream, [&] {
      return make([](auto&&... a) { return std::make_shared<T>(std::forward<decltype(a)>(a)...); });
    });
  } else {
    run_blocking(state, [&] { return make([](auto&&... a) { return T(std::forward<decltype(a)>(a)...); }); });
  }
}

}  // namespace davit::detail
