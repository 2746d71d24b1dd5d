// SPDX-License-Identifier: Apache-2.0
/// @file
/// NCCL's communicator, and what its peers share.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <type_traits>

#include "examples/davit_perf/cuda/peers.hpp"

namespace perf {

/// @throws Failure where NCCL says so.
void check(ncclResult_t result, char const* call);

struct DestroyNccl {
  void operator()(ncclComm_t comm) const noexcept { static_cast<void>(ncclCommAbort(comm)); }
};
using NcclComm = std::unique_ptr<std::remove_pointer_t<ncclComm_t>, DestroyNccl>;

[[nodiscard]] ncclDataType_t nccl_type(davit::Dtype dtype);

[[nodiscard]] std::unique_ptr<MoeSide> make_nccl_dense_moe(MoeProblem const& problem, ncclComm_t comm, Gpu& gpu);

}  // namespace perf
