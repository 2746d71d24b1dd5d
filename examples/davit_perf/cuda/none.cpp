// SPDX-License-Identifier: Apache-2.0
// A build without the CUDA backend: options refuse a GPU, so nothing here is reached but cuda_builds().
#include "examples/davit_perf/device.hpp"
#include "examples/support/failure.hpp"

namespace perf {
namespace {

[[noreturn]] void refuse() { throw support::Failure(support::Exit::usage, "this build has no CUDA backend"); }

}  // namespace

CudaBuilds cuda_builds() noexcept { return {.cuda = false, .nccl = false}; }

std::unique_ptr<Device> make_cuda_device(support::World const&, davit::Communicator&, Options const&) { refuse(); }

void run_limits(support::World const&, Options const&) { refuse(); }

}  // namespace perf
