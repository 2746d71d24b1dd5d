// SPDX-License-Identifier: Apache-2.0
/// @file
/// The peers on a GPU: one file each.
#pragma once

#include <memory>
#include <string>

#include "examples/davit_perf/exchange.hpp"
#include "examples/davit_perf/moe.hpp"
#include "examples/support/cuda/stream.hpp"

namespace perf {

/// What the sides of a GPU have in common.
struct Gpu {
  support::World const& world;
  int device;
  support::TimedStream stream;
};

[[nodiscard]] std::unique_ptr<ExchangeSide> make_staged_exchange(Exchange const& exchange, Gpu& gpu);
[[nodiscard]] std::unique_ptr<MoeSide> make_staged_moe(MoeProblem const& problem, Gpu& gpu);

/// NCCL without peer access, whose communicator is made once. nccl.cpp, or without_nccl.cpp.
class NcclPeers {
 public:
  virtual ~NcclPeers() = default;
  /// "NCCL 2.28.3, NCCL_P2P_DISABLE=1, NCCL_NVLS_ENABLE=0".
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] virtual std::unique_ptr<ExchangeSide> make(Exchange const& exchange) = 0;
  [[nodiscard]] virtual std::unique_ptr<MoeSide> make(MoeProblem const& problem) = 0;
  [[nodiscard]] virtual std::unique_ptr<MoeSide> make_dense(MoeProblem const& problem) = 0;
};
/// Collective. @throws Failure (usage) where ranks share a GPU.
[[nodiscard]] std::unique_ptr<NcclPeers> make_nccl_peers(Gpu& gpu);
/// Whether this build has them.
[[nodiscard]] bool has_nccl() noexcept;

/// Kernels that davit's engine has launched.
[[nodiscard]] std::uint64_t launches_of(davit::Communicator& comm);

}  // namespace perf
