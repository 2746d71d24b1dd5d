// SPDX-License-Identifier: Apache-2.0
#include "examples/support/moe_recipe.hpp"

#include "examples/davit_perf/moe.hpp"

namespace perf {
namespace {

/// The recipe done well, whoever carries its rows.
class RecipeMoe final : public MoeSide {
 public:
  RecipeMoe(MoeProblem const& problem, support::World const& world, std::unique_ptr<support::RowCarrier> carrier,
            bool blocks)
      : MoeSide(problem), recipe_(layer_of(problem), world.comm(), std::move(carrier)), blocks_(blocks) {}

  void route() override { recipe_.route(problem_.ids(), problem_.weights()); }
  void dispatch() override { recipe_.dispatch(problem_.x()); }
  void combine() override { recipe_.combine(output()); }
  [[nodiscard]] bool blocks() const noexcept override { return blocks_; }

  [[nodiscard]] std::byte* received() const override { return recipe_.received(); }
  [[nodiscard]] std::int64_t received_rows() const override { return recipe_.received_rows(); }
  [[nodiscard]] std::vector<std::int64_t> expert_counts() const override {
    auto const counts = recipe_.expert_counts();
    return {counts.begin(), counts.end()};
  }

 private:
  support::MoeRecipe recipe_;
  bool blocks_;
};

}  // namespace

support::LayerShape layer_of(MoeProblem const& problem) {
  return {.experts = problem.map().experts(),
          .top_k = problem.top_k(),
          .hidden = problem.hidden(),
          .dtype = problem.dtype()};
}

std::unique_ptr<MoeSide> make_recipe_moe(MoeProblem const& problem, support::World const& world,
                                         std::unique_ptr<support::RowCarrier> carrier, bool blocks) {
  return std::make_unique<RecipeMoe>(problem, world, std::move(carrier), blocks);
}

std::unique_ptr<MoeSide> make_mpi_moe(MoeProblem const& problem, support::World const& world) {
  return make_recipe_moe(problem, world, support::make_host_carrier(layer_of(problem), world.comm()), true);
}

}  // namespace perf
