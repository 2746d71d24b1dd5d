// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/moe.hpp"
#include "examples/support/mpi_moe.hpp"

namespace perf {
namespace {

/// The MPI recipe done well.
class MpiMoe final : public MoeSide {
 public:
  MpiMoe(MoeProblem const& problem, support::World const& world)
      : MoeSide(problem),
        recipe_({.experts = problem.map().experts(),
                 .top_k = problem.top_k(),
                 .hidden = problem.hidden(),
                 .dtype = problem.dtype()},
                world.comm()) {}

  void route() override { recipe_.route(problem_.ids(), problem_.weights()); }
  void dispatch() override { recipe_.dispatch(problem_.x()); }
  void combine() override { recipe_.combine(output()); }

  [[nodiscard]] std::byte* received() const override { return recipe_.received(); }
  [[nodiscard]] std::int64_t received_rows() const override { return recipe_.received_rows(); }
  [[nodiscard]] std::vector<std::int64_t> expert_counts() const override {
    auto const counts = recipe_.expert_counts();
    return {counts.begin(), counts.end()};
  }

 private:
  support::MpiMoe recipe_;
};

}  // namespace

std::unique_ptr<MoeSide> make_mpi_moe(MoeProblem const& problem, support::World const& world) {
  return std::make_unique<MpiMoe>(problem, world);
}

}  // namespace perf
