// SPDX-License-Identifier: Apache-2.0
// What a communicator does with other nodes: who gets on with the wire, and how long a rank stays for the others.
#include "davit/error.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/progress.hpp"
#include "transports/wait.hpp"

namespace davit::detail {
namespace {

// How long a failed communicator tries to tell the other nodes.
constexpr auto kPatience = std::chrono::milliseconds(200);

}  // namespace

void CommunicatorState::start_wire() {
  if (wire != nullptr && wire->has_own_thread()) helper().add(*this);
}

void CommunicatorState::check_thread() const {
  if (wire == nullptr || wire->allows_this_thread()) return;
  throw UsageError("davit: communicator '" + options.name + "' has ranks on " + std::to_string(mesh->nodes().nodes()) +
                   " nodes, so its calls call MPI, which is over or whose thread level is below MPI_THREAD_MULTIPLE: "
                   "then only the thread that made it may");
}

/// Under the lock.
void CommunicatorState::look_after_wire() {
  if (wire == nullptr || !usable()) return;
  auto const error = wire->failure();
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (...) {
    fail_by("wire", number());
  }
}

void CommunicatorState::stay_for_others(Task const& task) {
  if (wire == nullptr || wire->has_own_thread()) return;
  if (!task.stays_for_others()) {
    advance_wire();  // at least the peers hear of it
    return;
  }
  auto const last = task.number;
  Backoff backoff(eagerness);
  auto const deadline = std::chrono::steady_clock::now() + options.timeout;
  while (usable()) {
    settle_enqueued();
    int const owner = mesh->unsettled(last);
    if (owner < 0 && !has_enqueued() && wire->has_put()) return;
    bool const moved = advance_wire();
    if (moved) {
      backoff.moved();
      continue;
    }
    if (!backoff.idle()) continue;
    bootstrap->progress();
    look_after();
    if (usable() && std::chrono::steady_clock::now() > deadline) {
      auto const text = "davit: call " + std::to_string(last) + " is done here, but within " +
                        std::to_string(options.timeout.count()) + " ms not for other ranks of this node" +
                        (owner < 0 ? std::string() : waiting_for({owner})) + where(last);
      fail(owner, last, std::make_exception_ptr(TimeoutError(text, owner)), text);
    }
  }
  throw_if_failed();
}

void CommunicatorState::part_from_wire() noexcept {
  if (wire == nullptr || !wire->allows_this_thread()) return;
  Backoff backoff(Eagerness::rest);
  auto const begin = std::chrono::steady_clock::now();
  auto const deadline = begin + (usable() ? options.timeout : std::chrono::milliseconds(kPatience));
  while (!wire->is_broken() && (!wire->is_idle() || (usable() && mesh->unsettled(number()) >= 0))) {
    if (wire->progress()) {
      backoff.moved();
    } else if (backoff.idle() && std::chrono::steady_clock::now() > deadline) {
      break;
    }
  }
}

/// ", waiting for rank 2, rank 3 of node 1"
std::string CommunicatorState::waiting_for(std::vector<int> const& peers) const {
  std::string names;
  for (int const peer : peers) {
    names += (names.empty() ? ", waiting for rank " : wire == nullptr ? ", " : ", rank ") + std::to_string(peer);
    if (!mesh->nodes().is_here(peer)) names += " of node " + std::to_string(mesh->nodes().node_of(peer));
  }
  return names;
}

}  // namespace davit::detail
