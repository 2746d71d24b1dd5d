// SPDX-License-Identifier: Apache-2.0
/// @file
/// What exchanges by words take: mpirun -n 2, a GPU each, every collective depending on the one before it. Prints a
/// table of microseconds a collective for settings that make sense at a size, the best one marked; first which units
/// arrive whole and the pace that was measured. Data change from setting to setting, and the last round of each is
/// checked.
///
/// words_bench [rounds]
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda/patterns.hpp"
#include "tests/cuda/words_regions.hpp"
#include "transports/cuda/words_probe.hpp"

namespace davit::test {
namespace {

using cuda::WordsForm;
using cuda::WordsPlan;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kLargest = 64 * kMiB;  // message
constexpr std::size_t kBank = 16 * kMiB;     // at most
constexpr unsigned kWarps = 16;
constexpr std::chrono::seconds kLimit{20};

struct Setting {
  WordsForm form;
  WordsPlan plan;
  unsigned warps;
  std::size_t bank;  ///< bytes
};

std::string text_of(Setting const& setting) {
  constexpr char const* forms[] = {"62+2", "60+4", "12+4", "4+4"};
  char text[100];
  std::snprintf(text, sizeof text, "%s %ux%u%s, %u warps, %.1f%s, bank %zu K",
                forms[static_cast<unsigned>(setting.form)], setting.plan.writers,
                std::max(setting.plan.readers, setting.plan.writers), setting.plan.readers == 0 ? " self" : "",
                setting.warps, setting.plan.rate, setting.plan.peeks ? " peeks" : "", setting.bank / kKiB);
  return text;
}

class Bench {
 public:
  [[nodiscard]] cuda::UnitCounts probe() {
    cuda::PinnedMemory const memory(sizeof(cuda::UnitCounts));
    auto* const counts = reinterpret_cast<cuda::UnitCounts*>(memory.get());
    cuda::UnitCounts total{};
    for (int time = 0; time < 2; ++time) {  // the first loads the kernel
      *counts = {};
      barrier();
      cuda::launch_unit_probe(regions_.stream(), regions_.own(), regions_.theirs(), std::chrono::milliseconds(5),
                              counts);
      regions_.wait(kLimit);
    }
    MPI_Allreduce(counts, &total, 4, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return total;
  }

  [[nodiscard]] cuda::WordsPace pace(WordsForm form) {
    auto channel =
        regions_.make_pair(form, static_cast<std::uint32_t>(kMiB / cuda::words_batch_bytes(form)), 1, {}).out;
    barrier();
    auto const pace = cuda::measure_words_pace(regions_.device(), channel, kWarps, {4, 4, 0, false});
    barrier();
    return pace;
  }

  /// Microseconds a collective; throws where data are wrong or a collective does not end.
  [[nodiscard]] double run(Setting const& setting, std::uint32_t bytes, int rounds) {
    auto const stream = regions_.stream();
    auto const batches = static_cast<std::uint32_t>(setting.bank / cuda::words_batch_bytes(setting.form));
    auto pair = regions_.make_pair(setting.form, batches, 1, setting.plan);
    pair.from = {send_.get(), nullptr, bytes, 0};
    pair.to = {receive_.get(), nullptr, nullptr, bytes, 0};
    std::uint32_t const seed = ++seed_ * 2;
    fill(stream, send_.get(), bytes, seed + static_cast<std::uint32_t>(seat().rank));
    DAVIT_CUDA_CHECK(cudaMemsetAsync(receive_.get(), 0, bytes, stream));
    DAVIT_CUDA_CHECK(cudaMemsetAsync(verdict_.get(), 0, sizeof(Verdict), stream));
    DAVIT_CUDA_CHECK(cudaStreamSynchronize(stream));
    double best = 1e9;
    for (int time = 0; time < 4; ++time) {
      barrier();
      auto const begin = Clock::now();
      for (int round = 0; round < rounds; ++round) regions_.submit(pair, setting.warps);
      regions_.wait(kLimit);
      std::chrono::duration<double, std::micro> const took = Clock::now() - begin;
      best = std::min(best, took.count() / rounds);
    }
    check(stream, receive_.get(), bytes, seed + 1 - static_cast<std::uint32_t>(seat().rank),
          reinterpret_cast<Verdict*>(verdict_.get()));
    Verdict found{};
    DAVIT_CUDA_CHECK(cudaMemcpyAsync(&found, verdict_.get(), sizeof found, cudaMemcpyDefault, stream));
    DAVIT_CUDA_CHECK(cudaStreamSynchronize(stream));
    if (found.bad != 0 || found.checked == 0) throw std::runtime_error(text_of(setting) + ": " + text_of(found));
    MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return best;
  }

 private:
  WordsRegions regions_{2 * kBank};
  cuda::DeviceMemory send_{kLargest};
  cuda::DeviceMemory receive_{kLargest};
  cuda::DeviceMemory verdict_{sizeof(Verdict)};
  std::uint32_t seed_ = 0;
};

/// What is worth trying at a size.
std::vector<Setting> settings(std::size_t bytes, double pace) {
  std::vector<Setting> found;
  if (bytes <= 64 * kKiB) {
    for (auto const form : {WordsForm::unit12, WordsForm::line60}) {
      for (unsigned const blocks : {1U, 2U, 4U, 8U}) {
        if (blocks > 1 && bytes < 8 * kKiB) continue;
        for (unsigned const warps : {8U, 16U}) found.push_back({form, {blocks, 0, 0, false}, warps, 256 * kKiB});
      }
    }
  }
  if (bytes >= 16 * kKiB && bytes <= kMiB) {
    for (unsigned const writers : {1U, 2U, 4U}) {
      for (unsigned const readers : {2U, 4U}) {
        for (double const rate : {0.0, 0.9 * pace, pace}) {
          if (rate == 0 && bytes > 256 * kKiB) continue;
          found.push_back({WordsForm::line60, {writers, readers, rate, false}, kWarps, 512 * kKiB});
        }
      }
    }
  }
  if (bytes >= 256 * kKiB) {
    for (std::size_t const bank : {kMiB, 4 * kMiB, kBank}) {
      if (bank > kMiB && bank > 2 * bytes) continue;
      for (unsigned const readers : {2U, 4U}) {
        for (double const factor : {0.95, 1.0, 1.05}) {
          for (bool const peeks : {false, true}) {
            found.push_back({WordsForm::line62, {4, readers, pace * factor, peeks}, kWarps, bank});
          }
        }
      }
      found.push_back({WordsForm::line62, {8, 0, 0, false}, kWarps, bank});
    }
  }
  return found;
}

int run(int most_rounds) {
  bool const may = seat().why_not.empty() && seat().ranks == 2 && !seat().is_shared;
  if (!may) {
    if (seat().rank == 0) {
      std::fprintf(stderr, "SKIPPED: %s, nothing was measured\n",
                   seat().why_not.empty() ? "two ranks with a GPU each are needed" : seat().why_not.c_str());
    }
    return 77;
  }
  bool const speaks = seat().rank == 0;
  Bench bench;
  auto const seen = bench.probe();
  if (speaks) {
    std::printf("units: %llu changed lines, torn: %llu of 64 bytes, %llu of 16, %llu of 8\n", seen.changed, seen.torn64,
                seen.torn16, seen.torn8);
  }
  auto found = bench.pace(WordsForm::line62);
  if (speaks) {
    std::printf("pace: %.1f bytes of region a ns gives %.1f GB/s of data both ways, none gives %.1f\n", found.rate,
                found.paced_gbs, found.unpaced_gbs);
  }
  double rate = found.rate > 0 ? found.rate : 42;
  MPI_Bcast(&rate, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (std::size_t bytes = kKiB; bytes <= kLargest; bytes *= 4) {
    int const rounds =
        static_cast<int>(std::clamp<std::size_t>(256 * kMiB / bytes, 8, static_cast<std::size_t>(most_rounds)));
    std::vector<std::pair<double, std::string>> results;
    for (auto const& setting : settings(bytes, rate)) {
      results.emplace_back(bench.run(setting, static_cast<std::uint32_t>(bytes), rounds), text_of(setting));
    }
    std::sort(results.begin(), results.end());
    if (!speaks) continue;
    std::printf("\n%zu KiB, %d rounds: microseconds a collective, GB/s, form blocks, warps a block, rate, bank\n",
                bytes / kKiB, rounds);
    for (auto const& [time, text] : results) {
      std::printf("%10.2f %6.1f  %s\n", time, static_cast<double>(bytes) / time / 1e3, text.c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace davit::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 3;
  try {
    code = davit::test::run(argc > 1 ? std::max(std::atoi(argv[1]), 8) : 1000);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
  return code;
}
