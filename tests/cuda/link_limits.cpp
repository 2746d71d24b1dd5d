// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the links of this machine give, and what an exchange through the engine makes of it. mpirun -n 1 or 2; with two
/// ranks both measure at once. Copies go through a registered segment as slots are, whose ring is reused as slots are.
/// Times are of rank 0; the exchange moves data that change and checks the last round.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "tests/cuda/pair.hpp"
#include "tests/cuda/patterns.hpp"
#include "transports/cuda/driver.hpp"
#include "transports/segment.hpp"

namespace davit::test {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kRing = 8 * kMiB;       // of the host, where chunks are no larger
constexpr std::size_t kLargest = 128 * kMiB;  // chunk
constexpr std::size_t kMessage = 64 * kMiB;   // of an exchange
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// One direction's copies: from or to a ring in the segment.
struct Direction {
  cuda::Stream stream;
  std::byte* ring;
  std::byte* memory;
  bool is_up;

  void submit(std::size_t chunk, std::size_t copies) const {
    auto const places = std::max<std::size_t>(kRing / chunk, 1);
    for (std::size_t i = 0; i < copies; ++i) {
      auto* const here = ring + i % places * chunk;
      auto* const there = memory + i % places * chunk;
      DAVIT_CUDA_CHECK(
          cudaMemcpyAsync(is_up ? here : there, is_up ? there : here, chunk, cudaMemcpyDefault, stream.get()));
    }
  }
};

/// GB/s in each of the directions, both ranks at once.
double rate(std::vector<Direction const*> const& directions, std::size_t chunk) {
  std::size_t const copies = std::clamp<std::size_t>(512 * kMiB / chunk, 8, 2000);
  double best = 0;
  for (int time = 0; time < 3; ++time) {
    barrier();
    auto const begin = Clock::now();
    // In turns, so that neither direction waits for the other's submissions.
    for (std::size_t done = 0; done < copies; done += 8) {
      for (auto const* direction : directions) direction->submit(chunk, std::min<std::size_t>(8, copies - done));
    }
    for (auto const* direction : directions) direction->stream.wait();
    best = std::max(best, static_cast<double>(copies * chunk) / seconds_since(begin) / 1e9);
  }
  return best;
}

void print_copies() {
  auto segment = Segment::create("/dev/shm", 2 * kLargest);
  segment.reserve(0, 2 * kLargest);
  auto const registration = cuda::backend().register_memory(seat().device, segment.mapping(), 2 * kLargest);
  cuda::DeviceGuard const guard(seat().device);
  cuda::DeviceMemory const memory(2 * kLargest);
  DAVIT_CUDA_CHECK(cudaMemset(memory.get(), 1, 2 * kLargest));
  Direction const up{cuda::Stream(), segment.mapping().get(), memory.get(), true};
  Direction const down{cuda::Stream(), segment.mapping().get() + kLargest, memory.get() + kLargest, false};
  up.submit(kMiB, 8);
  down.submit(kMiB, 8);
  up.stream.wait();
  down.stream.wait();
  if (seat().rank == 0) {
    std::printf("\ncopies, GB/s a direction, %d rank(s) at once; ring of %zu MiB or one chunk\n", seat().ranks,
                kRing / kMiB);
    std::printf("%10s %8s %8s %8s\n", "chunk KiB", "up", "down", "both");
  }
  for (std::size_t chunk = 16 * kKiB; chunk <= kLargest; chunk *= 2) {
    double const one = rate({&up}, chunk);
    double const other = rate({&down}, chunk);
    double const both = rate({&up, &down}, chunk);
    if (seat().rank == 0) std::printf("%10zu %8.1f %8.1f %8.1f\n", chunk / kKiB, one, other, both);
  }
}

/// One exchange of kMessage with the peer: what an alltoallv submits.
void exchange(Pair& pair, std::size_t chunk, std::uint32_t& calls, std::byte const* send, std::byte* receive) {
  auto& mesh = pair.mesh();
  auto& engine = pair.engine();
  int const reader = pair.peer();
  for (std::size_t offset = 0; offset < kMessage; offset += chunk) {
    auto const place = pair.place(calls++);
    auto* const to = mesh.begin_push(engine, place);
    engine.submit(Lane::up, CopyOp{to, send + offset, chunk});
    mesh.end_push(engine, place, {&reader, 1});
    auto const* const from = mesh.begin_pull(engine, reader, place);
    engine.submit(Lane::down, CopyOp{receive + offset, from, chunk});
    mesh.end_pull(engine, reader);
  }
  engine.seal();
}

void print_exchange(std::size_t chunk, std::uint32_t slots) {
  Pair pair(slots, chunk, {});
  cuda::DeviceGuard const guard(seat().device);
  cuda::Stream const user;
  cuda::DeviceMemory const send(kMessage);
  cuda::DeviceMemory const receive(kMessage);
  cuda::DeviceMemory const verdict(sizeof(Verdict));
  DAVIT_CUDA_CHECK(cudaMemset(verdict.get(), 0, sizeof(Verdict)));
  std::uint32_t calls = 0;
  constexpr int kTimes = 12;
  double best = 1e9;
  double submission = 0;
  for (int time = 0; time < kTimes; ++time) {
    fill(user.get(), send.get(), kMessage, seed_of(static_cast<std::uint32_t>(time), pair.rank()));
    user.wait();
    barrier();
    auto const begin = Clock::now();
    exchange(pair, chunk, calls, send.get(), receive.get());
    submission = seconds_since(begin);
    while (!pair.engine().idle()) pair.engine().progress();
    best = std::min(best, seconds_since(begin));
  }
  check(user.get(), receive.get(), kMessage, seed_of(kTimes - 1, pair.peer()),
        reinterpret_cast<Verdict*>(verdict.get()));
  Verdict found{};
  DAVIT_CUDA_CHECK(cudaMemcpyAsync(&found, verdict.get(), sizeof found, cudaMemcpyDefault, user.get()));
  user.wait();
  if (seat().rank == 0) {
    std::printf("%10zu %6u %10.0f %8.1f %12.0f  %s\n", chunk / kKiB, slots, best * 1e6,
                static_cast<double>(kMessage) / best / 1e9, submission * 1e6,
                found.bad == 0 && found.checked > 0 ? "right" : text_of(found).c_str());
    std::fflush(stdout);
  }
  barrier();
}

int run() {
  if (!seat().why_not.empty()) {
    if (seat().rank == 0) std::fprintf(stderr, "SKIPPED: %s, nothing was measured\n", seat().why_not.c_str());
    return 77;
  }
  auto const facts = cuda::backend().facts(seat().device);
  std::printf("rank %d of %d: %s at %s%s\n", seat().rank, seat().ranks, facts.name.c_str(), facts.pci_address.c_str(),
              seat().is_shared ? ", SHARED: the figures mean little" : "");
  print_copies();
  if (seat().ranks != 2 || seat().is_shared) return 0;
  if (seat().rank == 0) {
    std::printf("\nexchanges of %zu MiB each way through the engine\n%10s %6s %10s %8s %12s\n", kMessage / kMiB,
                "chunk KiB", "slots", "us", "GB/s", "submitted us");
  }
  for (std::uint32_t const slots : {4U, 8U, 16U}) {
    for (std::size_t chunk = 256 * kKiB; chunk <= 4 * kMiB; chunk *= 2) print_exchange(chunk, slots);
  }
  return 0;
}

}  // namespace
}  // namespace davit::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 3;
  try {
    code = davit::test::run();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
  return code;
}
