// SPDX-License-Identifier: Apache-2.0
// A build without the CUDA backend.
#include "examples/moe_layer/device.hpp"

namespace moe {

bool builds_cuda() noexcept { return false; }

FoundGpu find_gpu(support::World const&, davit::Communicator&, Options const&) {
  return {nullptr, "this build has no CUDA backend"};
}

}  // namespace moe
