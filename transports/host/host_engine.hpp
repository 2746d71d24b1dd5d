// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engine on CPUs, progressed cooperatively by whoever waits: a lane whose head waits yields to the other lane.
#pragma once

#include <array>
#include <deque>
#include <variant>
#include <vector>

#include "davit/options.hpp"
#include "transports/engine.hpp"
#include "transports/host/direct_copy.hpp"

namespace davit::host {

/// In `HostOrder::eager` an operation runs at its submission if its lane is empty. The strict orders prove the
/// protocol: nothing runs before seal(); with `submission` there is one queue for both lanes, so an exchange that ends
/// shows that the order of submission is itself a schedule; copies and row operations land only with the lane's next
/// raise, so a slot that is credited or reused too early, or a flag that runs ahead, damages data here as it would on a
/// device.
class HostEngine final : public Engine {
 public:
  HostEngine(HostOrder order, DirectCopy direct) : order_(order), direct_(std::move(direct)) {}

  void submit(Lane lane, CopyOp const& op) override { take(lane, op); }
  void submit(Lane lane, ZeroOp const& op) override { take(lane, op); }
  void submit(Lane lane, RaiseOp const& op) override { take(lane, op); }
  void submit(Lane lane, HoldOp const& op) override { take(lane, op); }
  void submit(Lane lane, MoveRowsOp const& op) override { take(lane, op); }
  void submit(Lane lane, SumRowsOp const& op) override { take(lane, op); }
  void submit(Lane lane, FetchOp const& op) override { take(lane, op); }
  [[nodiscard]] bool can_fetch() const noexcept override { return order_ == HostOrder::eager; }
  [[nodiscard]] bool submits_whole_calls() const noexcept override { return order_ != HostOrder::eager; }
  void seal() override { sealed_ = true; }

  bool progress() override;
  [[nodiscard]] bool idle() const noexcept override;
  [[nodiscard]] std::optional<Blocked> blocked(Lane lane) const noexcept override;
  void abandon() noexcept override;

  /// Runs the head of a lane if it can; for tests that enumerate schedules.
  bool step(Lane lane);

 private:
  using Op = std::variant<CopyOp, ZeroOp, RaiseOp, HoldOp, MoveRowsOp, SumRowsOp, FetchOp>;
  struct Queue {
    std::deque<Op> waiting;
    std::vector<Op> late;  ///< strict orders: started, not landed
  };

  [[nodiscard]] Queue& queue_of(Lane lane) noexcept {
    return queues_[order_ == HostOrder::submission ? 0 : static_cast<std::size_t>(lane)];
  }
  template <class T>
  void take(Lane lane, T const& op);
  bool run_head(Queue& queue);
  void land(Queue& queue);

  bool run(CopyOp& op);
  bool run(ZeroOp& op);
  bool run(RaiseOp& op);
  bool run(HoldOp& op);
  bool run(MoveRowsOp& op);
  bool run(SumRowsOp& op);
  bool run(FetchOp& op);

  HostOrder order_;
  DirectCopy direct_;
  bool sealed_ = false;
  std::array<Queue, 2> queues_;
  std::vector<Term> terms_;  ///< scratch of a row sum
};

}  // namespace davit::host
