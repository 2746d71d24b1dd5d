// SPDX-License-Identifier: Apache-2.0
// nccl-dense: as serving frameworks do it without peer access. All ranks' rows go to all ranks, and each takes what its
// experts need; back, each rank makes a weighted partial row for every token of all ranks, zeros where it has none of
// its experts, and ncclReduceScatter adds them. Rows and partial rows of the problem's dtype.
#include <numeric>

#include "examples/davit_perf/cuda/nccl.hpp"
#include "examples/support/cuda/rows.hpp"

namespace perf {
namespace {

/// The row kernels alone: nothing is exchanged by rows here.
class LocalRows final : public support::CudaRows {
 public:
  using CudaRows::CudaRows;
  void exchange(std::byte const*, support::RowBlocks const&, std::byte*, support::RowBlocks const&) override {
    throw support::Failure(support::Exit::failed, "nccl-dense exchanges no single rows");
  }
};

class DenseMoe final : public MoeSide {
 public:
  DenseMoe(MoeProblem const& problem, ncclComm_t comm, Gpu& gpu)
      : MoeSide(problem),
        comm_(comm),
        gpu_(gpu),
        rows_(layer_of(problem), gpu.stream),
        all_(support::device_memory(output_bytes() * static_cast<std::size_t>(problem.ranks()))),
        ids_(choices() * static_cast<std::size_t>(problem.ranks())),
        weights_(ids_.size()) {}

  [[nodiscard]] bool blocks() const noexcept override { return false; }

  void route() override {
    rows_.finish();
    auto const count = static_cast<int>(choices());
    support::check(
        MPI_Allgather(problem_.ids().data(), count, MPI_INT32_T, ids_.data(), count, MPI_INT32_T, gpu_.world.comm()),
        "MPI_Allgather");
    support::check(MPI_Allgather(problem_.weights().data(), count, MPI_FLOAT, weights_.data(), count, MPI_FLOAT,
                                 gpu_.world.comm()),
                   "MPI_Allgather");
    plan();
    rows_.keep(takes_);
    rows_.keep(sums_);
  }

  void dispatch() override {
    check(ncclAllGather(problem_.x(), all_.get(), elements(), nccl_type(problem_.dtype()), comm_, gpu_.stream.get()),
          "ncclAllGather");
    rows_.move(received_.data(), all_.get(), takes_);
  }

  void combine() override {
    rows_.sum(all_.get(), sums_);
    check(ncclReduceScatter(all_.get(), output(), elements(), nccl_type(problem_.dtype()), ncclSum, comm_,
                            gpu_.stream.get()),
          "ncclReduceScatter");
  }

  [[nodiscard]] std::byte* received() const override { return received_.data(); }
  [[nodiscard]] std::int64_t received_rows() const override {
    return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  }
  [[nodiscard]] std::vector<std::int64_t> expert_counts() const override { return counts_; }

 private:
  [[nodiscard]] std::size_t choices() const { return problem_.ids().size(); }
  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(problem_.tokens() * problem_.hidden());  // equal on all ranks
  }
  /// Local number of an expert, -1 where it is another rank's.
  [[nodiscard]] std::int64_t local(std::int32_t expert) const {
    auto const& map = problem_.map();
    return map.owner(expert) == problem_.rank() ? expert - map.first(problem_.rank()) : -1;
  }

  void plan() {
    counts_.assign(static_cast<std::size_t>(problem_.map().count(problem_.rank())), 0);
    for (auto const id : ids_) {
      if (local(id) >= 0) ++counts_[static_cast<std::size_t>(local(id))];
    }
    received_.ensure(rows_, static_cast<std::size_t>(received_rows()) * problem_.row_bytes());
    std::vector<std::int64_t> next(counts_.size());
    std::exclusive_scan(counts_.begin(), counts_.end(), next.begin(), std::int64_t{0});
    takes_.moves.clear();
    sums_.clear();
    auto const k = static_cast<std::size_t>(problem_.top_k());
    for (std::size_t choice = 0; choice < ids_.size(); ++choice) {
      if (auto const expert = local(ids_[choice]); expert >= 0) {
        auto const row = next[static_cast<std::size_t>(expert)]++;
        takes_.moves.push_back({static_cast<std::int64_t>(choice / k), row});
        sums_.terms.push_back(
            {received_.data() + static_cast<std::size_t>(row) * problem_.row_bytes(), weights_[choice], 0});
      }
      if ((choice + 1) % k == 0) sums_.end_sum();
    }
  }

  ncclComm_t comm_;
  Gpu& gpu_;
  LocalRows rows_;
  std::shared_ptr<std::byte> all_;  // [R, T, H]: all rows on the way there, all partial rows on the way back
  support::CarrierMemory received_;
  std::vector<std::int32_t> ids_;  // [R, T, K]
  std::vector<float> weights_;     // [R, T, K]
  std::vector<std::int64_t> counts_;
  support::MoveList takes_;
  support::SumList sums_;
};

}  // namespace

std::unique_ptr<MoeSide> make_nccl_dense_moe(MoeProblem const& problem, ncclComm_t comm, Gpu& gpu) {
  return std::make_unique<DenseMoe>(problem, comm, gpu);
}

}  // namespace perf
