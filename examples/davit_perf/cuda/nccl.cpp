// SPDX-License-Identifier: Apache-2.0
// nccl: grouped ncclSend and ncclRecv, or NCCL's own collective where the blocks are equal. Peer access and NVLS are
// off, as on a machine whose GPUs cannot reach each other.
#include "examples/davit_perf/cuda/nccl.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "examples/support/cuda/rows.hpp"

namespace perf {
namespace {

constexpr std::array settings{std::array{"NCCL_P2P_DISABLE", "1"}, std::array{"NCCL_NVLS_ENABLE", "0"}};

/// Joins calls into one launch.
template <class Calls>
void grouped(Calls const& calls) {
  check(ncclGroupStart(), "ncclGroupStart");
  calls();
  check(ncclGroupEnd(), "ncclGroupEnd");
}

bool all_equal(std::vector<std::int64_t> const& counts) {
  return std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end();
}

class NcclExchange final : public ExchangeSide {
 public:
  NcclExchange(Exchange const& exchange, ncclComm_t comm, Gpu& gpu)
      : ExchangeSide(exchange),
        comm_(comm),
        stream_(gpu.stream.get()),
        type_(nccl_type(exchange.dtype())),
        counts_(exchange.in_elements(exchange.send().counts)) {}

  [[nodiscard]] bool blocks() const noexcept override { return false; }

  void run() override {
    switch (exchange_.operation()) {
      case Operation::allgatherv:
        return gather();
      case Operation::reduce_scatterv:
        return reduce();
      default:
        return exchange();
    }
  }

 private:
  void exchange() {
    grouped([&] {
      for (std::size_t rank = 0; rank < counts_.size(); ++rank) send(rank, exchange_.send(), rank);
      receive_all();
    });
  }

  void gather() {
    if (all_equal(exchange_.recv().counts)) {
      check(ncclAllGather(exchange_.input(), output(), elements(exchange_.send().total), type_, comm_, stream_),
            "ncclAllGather");
      return;
    }
    grouped([&] {
      for (std::size_t rank = 0; rank < exchange_.recv().counts.size(); ++rank) send(rank, exchange_.send(), 0);
      receive_all();
    });
  }

  void reduce() {
    if (all_equal(counts_)) {
      check(ncclReduceScatter(exchange_.input(), output(), elements(counts_.front()), type_, ncclSum, comm_, stream_),
            "ncclReduceScatter");
      return;
    }
    grouped([&] {
      for (std::size_t root = 0; root < counts_.size(); ++root) {
        if (counts_[root] == 0) continue;
        check(ncclReduce(exchange_.input() + exchange_.send().displs[root], output(), elements(counts_[root]), type_,
                         ncclSum, static_cast<int>(root), comm_, stream_),
              "ncclReduce");
      }
    });
  }

  void send(std::size_t rank, Blocks const& blocks, std::size_t block) const {
    if (blocks.counts[block] == 0) return;
    check(ncclSend(exchange_.input() + blocks.displs[block], elements(blocks.counts[block]), type_,
                   static_cast<int>(rank), comm_, stream_),
          "ncclSend");
  }
  void receive_all() const {
    auto const& blocks = exchange_.recv();
    for (std::size_t rank = 0; rank < blocks.counts.size(); ++rank) {
      if (blocks.counts[rank] == 0) continue;
      check(ncclRecv(output() + blocks.displs[rank], elements(blocks.counts[rank]), type_, static_cast<int>(rank),
                     comm_, stream_),
            "ncclRecv");
    }
  }
  static std::size_t elements(std::int64_t count) { return static_cast<std::size_t>(count); }

  ncclComm_t comm_;
  cudaStream_t stream_;
  ncclDataType_t type_;
  std::vector<std::int64_t> counts_;  // to send, in elements
};

class NcclRows final : public support::CudaRows {
 public:
  NcclRows(support::LayerShape const& shape, ncclComm_t comm, Gpu& gpu) : CudaRows(shape, gpu.stream), comm_(comm) {}

  void exchange(std::byte const* send, support::RowBlocks const& sent, std::byte* recv,
                support::RowBlocks const& taken) override {
    auto const bytes = [this](int rows) { return static_cast<std::size_t>(rows) * shape().row_bytes(); };
    grouped([&] {
      for (std::size_t rank = 0; rank < sent.counts.size(); ++rank) {
        auto const peer = static_cast<int>(rank);
        if (sent.counts[rank] != 0) {
          check(ncclSend(send + bytes(sent.places[rank]), bytes(sent.counts[rank]), ncclUint8, peer, comm_,
                         stream().get()),
                "ncclSend");
        }
        if (taken.counts[rank] != 0) {
          check(ncclRecv(recv + bytes(taken.places[rank]), bytes(taken.counts[rank]), ncclUint8, peer, comm_,
                         stream().get()),
                "ncclRecv");
        }
      }
    });
  }

 private:
  ncclComm_t comm_;
};

class Peers final : public NcclPeers {
 public:
  explicit Peers(Gpu& gpu) : gpu_(gpu) {
    support::require_gpu_a_rank(gpu.world, gpu.device, "--vs nccl");
    for (auto const& [name, value] : settings) setenv(name, value, 0);
    ncclUniqueId id{};
    if (gpu.world.is_root()) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    support::check(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, gpu.world.comm()), "MPI_Bcast");
    ncclComm_t made = nullptr;
    check(ncclCommInitRank(&made, gpu.world.size(), id, gpu.world.rank()), "ncclCommInitRank");
    comm_.reset(made);
  }

  std::string describe() const override {
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion");
    auto text = "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                std::to_string(version % 100);
    for (auto const& setting : settings) text += std::string(", ") + setting[0] + "=" + std::getenv(setting[0]);
    return text;
  }
  std::unique_ptr<ExchangeSide> make(Exchange const& exchange) override {
    return std::make_unique<NcclExchange>(exchange, comm_.get(), gpu_);
  }
  std::unique_ptr<MoeSide> make(MoeProblem const& problem) override {
    constexpr bool blocks = false;
    return make_recipe_moe(problem, gpu_.world, std::make_unique<NcclRows>(layer_of(problem), comm_.get(), gpu_),
                           blocks);
  }
  std::unique_ptr<MoeSide> make_dense(MoeProblem const& problem) override {
    return make_nccl_dense_moe(problem, comm_.get(), gpu_);
  }

 private:
  Gpu& gpu_;
  NcclComm comm_;
};

}  // namespace

void check(ncclResult_t result, char const* call) {
  if (result == ncclSuccess) return;
  throw support::Failure(support::Exit::failed, std::string(call) + ": " + ncclGetErrorString(result));
}

ncclDataType_t nccl_type(davit::Dtype dtype) {
  if (dtype == davit::f32) return ncclFloat32;
  if (dtype == davit::f16) return ncclFloat16;
  return dtype == davit::bf16 ? ncclBfloat16 : ncclUint8;
}

bool has_nccl() noexcept { return true; }

std::unique_ptr<NcclPeers> make_nccl_peers(Gpu& gpu) { return std::make_unique<Peers>(gpu); }

}  // namespace perf
