// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <thread>

#include "davit/error.hpp"
#include "transports/cuda/check.hpp"
#include "transports/cuda/handles.hpp"
#include "transports/cuda/words_lines.cuh"
#include "transports/cuda/words_probe.hpp"

namespace davit::cuda {
namespace {

constexpr unsigned kProbeWarps = 16;
constexpr unsigned kProbeThreads = kProbeWarps * kWordsLanes;
constexpr unsigned kProbeSteps = 4;
constexpr unsigned long long kLeastChanged = 10000;  // lines, before a probe is believed

static_assert(kUnitProbeBytes == std::size_t{kProbeWarps} * kProbeSteps * kWordsStepBytes);

__device__ unsigned long long nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Block 0 rewrites, all words of a batch with the same number, as the exchange writes; block 1 looks on. Neither waits
// for anything but the time.
__global__ void __launch_bounds__(kProbeThreads)
    probe_units(std::byte* own, std::byte const* theirs, unsigned long long time, UnitCounts* counts) {
  unsigned const lane = threadIdx.x % kWordsLanes;
  std::size_t const place = threadIdx.x / kWordsLanes * std::size_t{kProbeSteps} * kWordsStepBytes + lane * 16;
  auto const begin = nanoseconds();
  if (blockIdx.x == 0) {
    for (std::uint32_t round = 1; __any_sync(kWholeWarp, nanoseconds() - begin >= time) == 0; ++round) {
#pragma unroll
      for (unsigned step = 0; step < kProbeSteps; ++step) {
        // A warp that is not together leaves the line as it is.
        static_cast<void>(store_together(own + place + step * kWordsStepBytes, {round, round, round, round}));
      }
    }
    return;
  }
  UnitCounts seen{};
  std::uint32_t last[kProbeSteps] = {};
  bool is_first = true;
  // Lanes may read different times, so all end with the first.
  while (__any_sync(kWholeWarp, nanoseconds() - begin >= time) == 0) {
    Quad now[kProbeSteps];
    std::uint32_t lanes = kWholeWarp;
#pragma unroll
    for (unsigned step = 0; step < kProbeSteps; ++step) {
      now[step] = load_noting(theirs + place + step * kWordsStepBytes, lanes);
    }
    if (__all_sync(kWholeWarp, lanes == kWholeWarp) == 0) continue;  // several looks, not one
#pragma unroll
    for (unsigned step = 0; step < kProbeSteps; ++step) {
      Quad const& q = now[step];
      bool const torn8 = q.x != q.y || q.z != q.w;
      bool const torn16 = torn8 || q.x != q.z;
      std::uint32_t const flag = __shfl_sync(kWholeWarp, q.w, static_cast<int>(lane | 3U));
      bool const torn64 = torn16 || q.w != flag;
      unsigned const line = 0xfU << (lane & ~3U);
      bool const is_torn8 = (__ballot_sync(kWholeWarp, torn8) & line) != 0;
      bool const is_torn16 = (__ballot_sync(kWholeWarp, torn16) & line) != 0;
      bool const is_torn64 = (__ballot_sync(kWholeWarp, torn64) & line) != 0;
      if (lane % 4 == 3) {
        seen.torn8 += is_torn8;
        seen.torn16 += is_torn16;
        seen.torn64 += is_torn64;
        seen.changed += !is_first && flag != last[step];
      }
      last[step] = flag;
    }
    is_first = false;
  }
  if (lane % 4 != 3) return;
  atomicAdd(&counts->changed, seen.changed);
  atomicAdd(&counts->torn64, seen.torn64);
  atomicAdd(&counts->torn16, seen.torn16);
  atomicAdd(&counts->torn8, seen.torn8);
}

constexpr std::uint32_t kPaceBytes = 4U << 20U;
constexpr int kPaceTimes = 3;  // best of these
constexpr double kLeastGain = 1.02;

/// An exchange of this rank with itself: what it writes goes up its link and comes down again.
class Mirror {
 public:
  Mirror(WordsDevice const& device, WordsChannel& channel, unsigned warps, WordsPlan plan)
      : device_(device), channel_(channel), warps_(warps), plan_(plan) {
    DAVIT_CUDA_CHECK(cudaMemsetAsync(from_.get(), 1, kPaceBytes, stream_.get()));
    DAVIT_CUDA_CHECK(cudaMemsetAsync(arrivals_.get(), 0, 2 * sizeof(std::uint32_t), stream_.get()));
    std::fill_n(words_.get(), kWordsBytes, std::byte{});
    static_cast<void>(run(0));
  }

  /// Bytes of the message a nanosecond, at a rate.
  [[nodiscard]] double run(double rate) {
    double best = 0;
    for (int time = 0; time < kPaceTimes; ++time) {
      auto const begin = std::chrono::steady_clock::now();
      submit(rate);
      wait(begin + std::chrono::seconds(10));
      std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - begin;
      best = std::max(best, kPaceBytes / took.count());
    }
    return best;
  }

 private:
  static constexpr std::size_t kWordsBytes = 128;  // failed and left, a line each

  [[nodiscard]] std::uint32_t* word(std::size_t line) const {
    return reinterpret_cast<std::uint32_t*>(words_.get() + 64 * line);
  }

  void submit(double rate) {
    WordsPair pair{};
    pair.out = pair.in = channel_;
    pair.from = {from_.get(), nullptr, kPaceBytes, 0};
    pair.to = {to_.get(), nullptr, nullptr, kPaceBytes, 0};
    pair.arrivals = reinterpret_cast<std::uint32_t*>(arrivals_.get());
    pair.plan = plan_;
    pair.plan.rate = rate;
    launch(stream_.get(), device_, {{&pair, 1}, warps_, word(0), word(1)});
    channel_.generation += words_generations(channel_.form, channel_.batches, kPaceBytes);
  }

  // A kernel that does not end is told to, before its memory goes.
  void wait(std::chrono::steady_clock::time_point deadline) {
    while (!stream_.is_done()) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      *static_cast<std::uint32_t volatile*>(word(0)) = 1;
      stream_.wait();
      throw TimeoutError("davit: the pace of words could not be measured: an exchange with itself took ten seconds",
                         -1);
    }
  }

  WordsDevice const& device_;
  WordsChannel& channel_;
  unsigned warps_;
  WordsPlan plan_;
  Stream stream_;
  DeviceMemory from_{kPaceBytes};
  DeviceMemory to_{kPaceBytes};
  DeviceMemory arrivals_{2 * sizeof(std::uint32_t)};
  PinnedMemory words_{kWordsBytes};
};

}  // namespace

void launch_unit_probe(cudaStream_t stream, std::byte* own, std::byte const* theirs, std::chrono::microseconds time,
                       UnitCounts* counts) {
  probe_units<<<2, kProbeThreads, 0, stream>>>(own, theirs, static_cast<unsigned long long>(time.count()) * 1000,
                                               counts);
  check(cudaGetLastError(), "launch of probe_units");
}

WordsUnits believed_units(UnitCounts const& counts) noexcept {
  if (counts.torn8 > 0) return WordsUnits::none;
  if (counts.torn16 > 0 || counts.changed < kLeastChanged) return WordsUnits::units8;
  return counts.torn64 > 0 ? WordsUnits::units16 : WordsUnits::lines64;
}

WordsPace measure_words_pace(WordsDevice const& device, WordsChannel& channel, unsigned warps, WordsPlan plan) {
  Mirror mirror(device, channel, warps, plan);
  double const unpaced = mirror.run(0);
  WordsPace best{0, 0, unpaced};
  // Where links are as fast as they are today, from a slow one to more than any gives, finer steps where it matters:
  // the best pace is a little above what both ways give without one.
  for (double factor = 0.9; factor < 1.75; factor += 0.05) {
    double const rate = unpaced * factor;
    double const reached = mirror.run(rate);
    if (reached > best.paced_gbs) best = {rate, reached, unpaced};
  }
  if (best.paced_gbs < kLeastGain * unpaced) best.rate = 0;
  return best;
}

}  // namespace davit::cuda
