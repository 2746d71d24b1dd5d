// SPDX-License-Identifier: Apache-2.0
// A build without NCCL: options refuse its peers.
#include "examples/davit_perf/cuda/peers.hpp"

namespace perf {

bool has_nccl() noexcept { return false; }

std::unique_ptr<NcclPeers> make_nccl_peers(Gpu&) {
  throw support::Failure(support::Exit::usage, "this build has no NCCL");
}

}  // namespace perf
