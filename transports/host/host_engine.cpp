// SPDX-License-Identifier: Apache-2.0
#include "transports/host/host_engine.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "davit/error.hpp"

namespace davit::host {
namespace {

// A fetch is cut so that deadlines and other queues get their turn: about half a millisecond each.
constexpr std::size_t kFetchPiece = std::size_t{4} << 20;

}  // namespace

template <class T>
void HostEngine::take(Lane lane, T const& op) {
  auto& queue = queue_of(lane);
  if (order_ == HostOrder::eager && queue.waiting.empty()) {
    T now = op;
    if (run(now)) return;
    queue.waiting.emplace_back(now);
    return;
  }
  queue.waiting.emplace_back(op);
}

// Instantiated here, since the header's submit() calls them wherever the compiler sees through the interface.
template void HostEngine::take(Lane, CopyOp const&);
template void HostEngine::take(Lane, ZeroOp const&);
template void HostEngine::take(Lane, RaiseOp const&);
template void HostEngine::take(Lane, HoldOp const&);
template void HostEngine::take(Lane, MoveRowsOp const&);
template void HostEngine::take(Lane, SumRowsOp const&);
template void HostEngine::take(Lane, FetchOp const&);

bool HostEngine::run(CopyOp& op) {
  if (op.bytes > 0) std::memcpy(op.to, op.from, op.bytes);  // an empty block may be null
  return true;
}

bool HostEngine::run(ZeroOp& op) {
  if (op.bytes > 0) std::memset(op.to, 0, op.bytes);
  return true;
}

bool HostEngine::run(RaiseOp& op) {
  store_release(*op.counter, op.value);
  return true;
}

bool HostEngine::run(HoldOp& op) { return has_reached(load_acquire(*op.counter), op.value); }

bool HostEngine::run(MoveRowsOp& op) {
  move_rows(op.to, op.from, op.row_bytes, {op.moves, op.count}, op.stores);
  return true;
}

bool HostEngine::run(SumRowsOp& op) {
  for (std::size_t row = 0; row < op.rows; ++row) {
    terms_.clear();
    for (auto index = op.first[row]; index < op.first[row + 1]; ++index) {
      auto const& term = op.terms[index];
      auto const& base = op.bases[term.base];
      terms_.push_back({base.data + term.row * base.stride, term.weight, term.closes_group});
    }
    sum_row(op.types, terms_, op.bias == nullptr ? nullptr : op.bias + row * op.out_stride,
            op.out + row * op.out_stride, op.columns);
  }
  return true;
}

bool HostEngine::run(FetchOp& op) {
  auto const check = [&op] {
    if (static_cast<OutboxState>(load_in_order(op.header->state)) != OutboxState::failed) return;
    store_release(op.line->read, op.number);
    auto const trouble = failure_of(op.peer, *op.header);
    throw PeerError("davit: " + trouble.text, trouble.culprit);
  };
  if (!op.begun) {
    store_in_order(op.line->reading, op.number);
    check();
    op.begun = true;
  }
  auto copied = std::min(op.bytes, kFetchPiece);
  if (op.here != nullptr) {
    std::memcpy(op.to, op.here, copied);
    op.here += copied;
  } else {
    copied = direct_.read(op.peer, op.address, op.to, copied);
  }
  op.to += copied;
  op.address += copied;
  op.bytes -= copied;
  if (op.bytes > 0) return false;
  check();
  store_release(op.line->read, op.number);
  return true;
}

void HostEngine::land(Queue& queue) {
  for (auto& op : queue.late) {
    std::visit([this](auto& o) { run(o); }, op);
  }
  queue.late.clear();
}

/// Runs the first operation. @returns whether it is done.
bool HostEngine::run_head(Queue& queue) {
  auto& op = queue.waiting.front();
  if (order_ != HostOrder::eager) {
    if (std::holds_alternative<RaiseOp>(op)) {
      land(queue);
    } else if (!std::holds_alternative<HoldOp>(op)) {
      queue.late.push_back(op);
      queue.waiting.pop_front();
      return true;
    }
  }
  if (!std::visit([this](auto& o) { return run(o); }, op)) return false;
  queue.waiting.pop_front();
  return true;
}

bool HostEngine::progress() {
  if (order_ != HostOrder::eager && !sealed_) return false;
  bool moved = false;
  for (auto& queue : queues_) {
    while (!queue.waiting.empty()) {
      auto const* const fetch = std::get_if<FetchOp>(&queue.waiting.front());
      if (!run_head(queue)) {
        moved = moved || fetch != nullptr;  // a piece of it came
        break;
      }
      moved = true;
    }
    if (queue.waiting.empty()) land(queue);
  }
  if (idle()) sealed_ = false;
  return moved;
}

bool HostEngine::step(Lane lane) {
  auto& queue = queue_of(lane);
  bool const moved = !queue.waiting.empty() && run_head(queue);
  if (queue.waiting.empty()) land(queue);
  return moved;
}

bool HostEngine::idle() const noexcept {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](Queue const& queue) { return queue.waiting.empty() && queue.late.empty(); });
}

std::optional<Blocked> HostEngine::blocked(Lane lane) const noexcept {
  auto const& queue = queues_[order_ == HostOrder::submission ? 0 : static_cast<std::size_t>(lane)];
  if (queue.waiting.empty()) return std::nullopt;
  auto const* const hold = std::get_if<HoldOp>(&queue.waiting.front());
  if (hold == nullptr) return std::nullopt;
  return Blocked{hold->peer, hold->awaited, hold->value, load_acquire(*hold->counter)};
}

void HostEngine::abandon() noexcept {
  for (auto& queue : queues_) {
    queue.waiting.clear();
    queue.late.clear();
  }
  sealed_ = false;
}

}  // namespace davit::host
