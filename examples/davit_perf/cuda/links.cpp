// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/cuda/links.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "davit/options.hpp"
#include "examples/support/cuda/stream.hpp"
#include "transports/cuda/cuda_backend.hpp"
#include "transports/segment.hpp"

namespace perf {
namespace {

constexpr std::size_t ring_bytes = std::size_t{8} << 20;  // of the host, where copies are no larger
constexpr std::size_t least_total = std::size_t{512} << 20;
constexpr std::size_t in_turn = 8;
using Clock = std::chrono::steady_clock;

/// One direction's copies.
struct Direction {
  support::TimedStream stream;
  std::byte* host;
  std::byte* device;
  bool is_up;

  void submit(std::size_t bytes, std::size_t copies) const {
    auto const places = std::max<std::size_t>(ring_bytes / bytes, 1);
    for (std::size_t i = 0; i < copies; ++i) {
      auto* const here = host + i % places * bytes;
      auto* const there = device + i % places * bytes;
      support::copy(stream.get(), is_up ? here : there, is_up ? there : here, bytes);
    }
  }
};

double rate(support::World const& world, std::vector<Direction const*> const& directions, std::size_t bytes) {
  auto const copies = std::clamp<std::size_t>(least_total / bytes, in_turn, 2000);
  double best = 0;
  for (int time = 0; time < 3; ++time) {
    world.barrier();
    auto const begin = Clock::now();
    // In turns, so that neither direction waits for the other's submissions.
    for (std::size_t done = 0; done < copies; done += in_turn) {
      for (auto const* direction : directions) direction->submit(bytes, std::min(in_turn, copies - done));
    }
    for (auto const* direction : directions) direction->stream.wait();
    auto const seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, static_cast<double>(copies * bytes) / seconds / 1e9);
  }
  return best;
}

}  // namespace

struct Links::Ends {
  Ends(int gpu, std::size_t each)
      : segment(davit::Segment::create(davit::environment().shm_dir, 2 * each)), memory(2 * each) {
    segment.reserve(0, 2 * each);
    registration = davit::cuda::backend().register_memory(gpu, segment.mapping(), 2 * each);
    DAVIT_CUDA_CHECK(cudaMemset(memory.get(), 1, 2 * each));
    DAVIT_CUDA_CHECK(cudaStreamSynchronize(nullptr));
    auto* const host = segment.mapping().get();
    up = {{}, host, memory.get(), true};
    down = {{}, host + each, memory.get() + each, false};
  }

  davit::Segment segment;
  std::shared_ptr<void> registration;
  davit::cuda::DeviceMemory memory;
  Direction up, down;
};

Links::Links(support::World const& world, int device, std::size_t largest)
    : world_(world), ends_(std::make_unique<Ends>(device, std::max(largest, ring_bytes))) {
  for (auto const* direction : {&ends_->up, &ends_->down}) {
    direction->submit(std::size_t{1} << 20, in_turn);
    direction->stream.wait();
  }
}

Links::~Links() = default;

LinkRates Links::rates(std::size_t bytes) const {
  LinkRates rates;
  rates.up = rate(world_, {&ends_->up}, bytes);
  rates.down = rate(world_, {&ends_->down}, bytes);
  rates.both = both_ways(bytes);
  return rates;
}

double Links::both_ways(std::size_t bytes) const { return rate(world_, {&ends_->up, &ends_->down}, bytes); }

}  // namespace perf
