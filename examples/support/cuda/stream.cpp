// SPDX-License-Identifier: Apache-2.0
#include "examples/support/cuda/stream.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "davit/options.hpp"
#include "transports/cuda/cuda_backend.hpp"

namespace support {
namespace {

template <class Owner>
std::shared_ptr<std::byte> shared(std::size_t bytes) {
  auto const owner = std::make_shared<Owner>(std::max<std::size_t>(bytes, 1));
  return {owner, owner->get()};
}

}  // namespace

int choose_gpu(World const& world, davit::Communicator& comm) {
  int const device = comm.device();
  if (!world.all(device >= 0)) {
    throw Failure(Exit::usage, "--device cuda: no GPU here, or none that the process may use", Told::by_root);
  }
  DAVIT_CUDA_CHECK(cudaSetDevice(device));
  DAVIT_CUDA_CHECK(cudaFree(nullptr));  // makes the context: only then has the program chosen
  comm.prepare();
  return device;
}

std::optional<std::pair<int, int>> sharing_ranks(World const& world, int device) {
  auto const mine = davit::cuda::backend().facts(device).identity;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  check(MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, world.comm()), "MPI_Allgather");
  for (auto first = all.begin(); first != all.end(); ++first) {
    auto const second = std::find(first + 1, all.end(), *first);
    if (second != all.end())
      return std::pair(static_cast<int>(first - all.begin()), static_cast<int>(second - all.begin()));
  }
  return std::nullopt;
}

void require_gpu_a_rank(World const& world, int device, char const* who) {
  auto const sharing = sharing_ranks(world, device);
  if (!sharing) return;
  throw Failure(Exit::usage,
                std::string(who) + ": NCCL takes one GPU a rank, but ranks " + std::to_string(sharing->first) +
                    " and " + std::to_string(sharing->second) + " share one; start as many ranks as there are GPUs",
                Told::by_root);
}

TimedStream::TimedEvent TimedStream::make_event() {
  cudaEvent_t made = nullptr;
  DAVIT_CUDA_CHECK(cudaEventCreateWithFlags(&made, cudaEventDefault));
  return TimedEvent(made);
}

TimedStream::TimedStream() : begin_(make_event()), end_(make_event()) {}

void TimedStream::wait() const {
  auto const begin = std::chrono::steady_clock::now();
  auto const timeout = davit::environment().timeout;
  while (!stream_.is_done()) {
    auto const waited = std::chrono::steady_clock::now() - begin;
    if (waited > timeout) {
      throw Failure(Exit::failed,
                    "the GPU has not done its work within " + std::to_string(timeout.count()) + " ms (DAVIT_TIMEOUT)");
    }
    // Other ranks and MPI want the core too, once it takes longer.
    if (waited > std::chrono::milliseconds(1)) std::this_thread::yield();
  }
}

void TimedStream::start() { DAVIT_CUDA_CHECK(cudaEventRecord(begin_.get(), stream_.get())); }

double TimedStream::stop() {
  DAVIT_CUDA_CHECK(cudaEventRecord(end_.get(), stream_.get()));
  wait();
  float milliseconds = 0;
  DAVIT_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
  return 1000 * static_cast<double>(milliseconds);
}

std::shared_ptr<std::byte> device_memory(std::size_t bytes) { return shared<davit::cuda::DeviceMemory>(bytes); }

std::shared_ptr<std::byte> pinned_memory(std::size_t bytes) { return shared<davit::cuda::PinnedMemory>(bytes); }

void copy(cudaStream_t stream, void* to, void const* from, std::size_t bytes) {
  if (bytes != 0) DAVIT_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

}  // namespace support
