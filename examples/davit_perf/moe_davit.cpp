// SPDX-License-Identifier: Apache-2.0
#include "davit/expert_group.hpp"
#include "examples/davit_perf/moe.hpp"

namespace perf {
namespace {

class DavitMoe final : public MoeSide {
 public:
  DavitMoe(MoeProblem const& problem, davit::Communicator& comm, std::optional<davit::Stream> stream)
      : MoeSide(problem),
        stream_(stream),
        group_(comm, {.experts = problem.map().experts(),
                      .top_k = problem.top_k(),
                      .hidden = problem.hidden(),
                      .max_tokens = problem.tokens(),
                      .dtype = problem.dtype()}) {}

  void route() override {
    routing_ = group_.route(problem_.ids(), problem_.weights());
    rows_ = routing_.rows(davit::Layout::by_expert);
    received_.ensure(problem_.device(), static_cast<std::size_t>(rows_) * problem_.row_bytes());
  }

  [[nodiscard]] bool blocks() const noexcept override { return !stream_; }

  void dispatch() override {
    static_cast<void>(
        group_.dispatch(routing_, problem_.x(), davit::ReceiveInto{.rows = received()}, {.stream = stream_}));
  }

  void combine() override { group_.combine(routing_, received(), output(), {.stream = stream_}); }

  [[nodiscard]] std::byte* received() const override { return received_.get(); }
  [[nodiscard]] std::int64_t received_rows() const override { return rows_; }

  [[nodiscard]] bool adds_ranks_at_once() const override {
    auto const group = group_.options().reduce_group;  // the node's ranks
    return group == 1 || group == problem_.ranks();
  }

  [[nodiscard]] std::vector<std::int64_t> expert_counts() const override {
    auto const counts = routing_.counts().expert_counts;
    return {counts.begin(), counts.end()};
  }

 private:
  std::optional<davit::Stream> stream_;
  davit::ExpertGroup group_;
  davit::Routing routing_;
  std::int64_t rows_ = 0;
  GrowingMemory received_;
};

}  // namespace

std::unique_ptr<MoeSide> make_davit_moe(MoeProblem const& problem, davit::Communicator& comm,
                                        std::optional<davit::Stream> stream) {
  return std::make_unique<DavitMoe>(problem, comm, stream);
}

}  // namespace perf
