// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "davit/error.hpp"
#include "tests/support/stand_in.hpp"
#include "transports/held.hpp"

namespace davit::test {
namespace {

class StandInEngine final : public DeviceEngine {
 public:
  StandInEngine(StandIn& backend, int device) : backend_(backend), device_(device) {}
  ~StandInEngine() override {
    if (StandInEngine::idle()) return;
    StandInEngine::abandon();
    static_cast<void>(run_out_within(std::chrono::seconds(10)));
  }
  StandInEngine(StandInEngine const&) = delete;
  StandInEngine& operator=(StandInEngine const&) = delete;

  void submit(Lane lane, CopyOp const& op) override {
    if (op.bytes == 0) return;
    auto* const to = seen(op.to, op.bytes);
    auto const* const from = seen(op.from, op.bytes);
    put(lane, [=] { std::memcpy(to, from, op.bytes); });
  }
  void submit(Lane lane, ZeroOp const& op) override {
    if (op.bytes == 0) return;
    auto* const to = seen(op.to, op.bytes);
    put(lane, [=] { std::memset(to, 0, op.bytes); });
  }
  void submit(Lane lane, RaiseOp const& op) override {
    static_cast<void>(seen(op.counter, sizeof(Counter)));
    on(lane).submit([=] {
      store_release(*op.counter, op.value);
      return true;
    });
  }
  void submit(Lane lane, HoldOp const& op) override {
    static_cast<void>(seen(op.counter, sizeof(Counter)));
    of(lane).held.add(op);
    on(lane).submit([=] { return has_reached(load_acquire(*op.counter), op.value); });
  }
  void submit(Lane lane, MoveRowsOp const& op) override {
    auto const moves = std::make_shared<std::vector<host::RowMove>>();
    for (std::size_t index = 0; index < op.count; ++index) {
      auto const& move = moves->emplace_back(op.moves[index]);
      static_cast<void>(seen(op.to + static_cast<std::size_t>(move.to) * op.row_bytes, op.row_bytes));
      static_cast<void>(seen(op.from + static_cast<std::size_t>(move.from) * op.row_bytes, op.row_bytes));
    }
    if (moves->empty()) return;
    ++launches_;
    // The arrays may begin where there is no memory, before the first row that is moved.
    auto const there = [&](std::byte const* base, long long row) {
      auto const offset = static_cast<std::size_t>(row) * op.row_bytes;
      return backend_.seen_by_host(base + offset) - offset;
    };
    auto* const to = there(op.to, moves->front().to);
    auto const* const from = there(op.from, moves->front().from);
    put(lane, [=] { host::move_rows(to, from, op.row_bytes, *moves, op.stores); });
  }
  void submit(Lane lane, SumRowsOp const& op) override {
    if (op.rows == 0) return;
    ++launches_;
    std::vector<host::Term> terms;
    std::vector<std::size_t> first;
    for (std::size_t row = 0; row < op.rows; ++row) {
      first.push_back(terms.size());
      for (auto index = op.first[row]; index < op.first[row + 1]; ++index) {
        auto const& term = op.terms[index];
        auto const& base = op.bases[term.base];
        auto const* const data = base.data + term.row * base.stride;
        terms.push_back({seen(data, op.columns * size_of(op.types.in)), term.weight, term.closes_group});
      }
    }
    first.push_back(terms.size());
    auto const bytes = (op.rows - 1) * op.out_stride + op.columns * size_of(op.types.out);
    auto* const out = seen(op.out, bytes);
    auto const* const bias = op.bias == nullptr ? nullptr : seen(op.bias, bytes);
    put(lane, [=] {
      for (std::size_t row = 0; row < op.rows; ++row) {
        host::sum_row(op.types, std::span(terms).subspan(first[row], first[row + 1] - first[row]),
                      bias == nullptr ? nullptr : bias + row * op.out_stride, out + row * op.out_stride, op.columns);
      }
    });
  }
  void submit(Lane, FetchOp const&) override { throw UsageError("davit: the stand-in fetches nothing"); }
  [[nodiscard]] bool can_fetch() const noexcept override { return false; }
  void begin_aside(Lane lane) override {
    auto& queue = of(lane);
    queue.side.wait_for(queue.main.record());
    queue.is_aside = queue.is_loose = true;
  }
  void end_aside(Lane lane) override { of(lane).is_aside = false; }
  void join_aside(Lane lane) override { join(of(lane)); }
  [[nodiscard]] bool submits_whole_calls() const noexcept override { return true; }
  void seal() override {
    for (auto& queue : queues_) join(queue);
  }
  bool progress() override { return false; }
  [[nodiscard]] bool idle() const noexcept override {
    for (auto& queue : queues_) {
      if (!queue.main.idle() || !queue.side.idle()) return false;
      queue.held.clear();
    }
    return true;
  }
  [[nodiscard]] std::optional<Blocked> blocked(Lane lane) const noexcept override { return held_up(lane); }
  void abandon() noexcept override {
    abandoned_ = true;
    release_holds();
  }
  [[nodiscard]] bool run_out() noexcept override {
    release_holds();
    return idle();
  }

  void begin_after(CUstream_st* stream) override {
    auto const event = StandInStream::of(stream).record();
    for (auto& queue : queues_) queue.main.wait_for(event);
  }
  void end_before(CUstream_st* stream) override {
    for (auto& queue : queues_) {
      join(queue);
      StandInStream::of(stream).wait_for(queue.main.record());
    }
  }
  void release_holds() noexcept override {
    released_ = true;
    for (auto& queue : queues_) queue.held.release();
  }
  [[nodiscard]] std::optional<Blocked> held_up(Lane lane) const noexcept override {
    return queues_[static_cast<std::size_t>(lane)].held.first_closed();
  }
  [[nodiscard]] std::uint64_t launches() const noexcept override { return launches_; }

 private:
  struct Queue {
    mutable Held held;
    StandInStream side;
    StandInStream main;  // ends first
    bool is_aside = false;
    bool is_loose = false;  ///< the side has what the main stream does not wait for
  };

  template <class T>
  [[nodiscard]] T* seen(T* memory, std::size_t bytes) const {
    backend_.check_reach(device_, memory, bytes);
    return reinterpret_cast<T*>(backend_.seen_by_host(memory));
  }
  [[nodiscard]] Queue& of(Lane lane) noexcept {
    if (abandoned_.exchange(false)) released_ = false;  // what comes after it has run out runs again
    return queues_[static_cast<std::size_t>(lane)];
  }
  /// The stream that takes a lane's next operation.
  [[nodiscard]] StandInStream& on(Lane lane) {
    auto& queue = of(lane);
    return queue.is_aside ? queue.side : queue.main;
  }
  static void join(Queue& queue) {
    if (std::exchange(queue.is_loose, false)) queue.main.wait_for(queue.side.record());
  }
  template <class Work>
  void put(Lane lane, Work work) {
    // What runs out after a failure moves anything: here nothing, since the thread sanitizer would call it a race.
    on(lane).submit([this, work = std::move(work)] {
      if (!released_.load(std::memory_order_acquire)) work();
      return true;
    });
  }

  StandIn& backend_;
  int device_;
  std::atomic<bool> released_{false};
  mutable Queue queues_[2];  // end first
  std::atomic<bool> abandoned_{false};
  std::uint64_t launches_ = 0;
};

}  // namespace

std::unique_ptr<DeviceEngine> StandIn::make_engine(int device, DeviceEngineSettings const&) {
  return std::make_unique<StandInEngine>(*this, device);
}

}  // namespace davit::test
