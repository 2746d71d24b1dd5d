// SPDX-License-Identifier: Apache-2.0
/// @file
/// Two processes under mpirun, a segment each that both have mapped and registered, and in each a words channel.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "tests/cuda/pair.hpp"
#include "transports/cuda/driver.hpp"
#include "transports/cuda/words.hpp"
#include "transports/segment.hpp"

namespace davit::test {

class WordsRegions {
 public:
  /// Collective. @param region bytes of a rank's, at most
  explicit WordsRegions(std::size_t region)
      : region_(region),
        own_(made(kLines + region)),
        segments_(exchange_segments(own_)),
        guard_(seat().device),
        device_(cuda::words_device(seat().device)) {
    for (int rank = 0; rank < 2; ++rank) {
      registrations_[rank] =
          cuda::backend().register_memory(seat().device, segments_.mappings[rank], segments_.tickets[rank].bytes);
    }
    DAVIT_CUDA_CHECK(cudaMemset(arrivals_.get(), 0, kArrivals));
    cuda::load_words_kernels(stream_.get());
    DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
    barrier();
  }

  [[nodiscard]] cuda::WordsDevice const& device() const noexcept { return device_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
  /// The regions, this rank's and the other's.
  [[nodiscard]] std::byte* own() const noexcept { return segment(seat().rank) + kLines; }
  [[nodiscard]] std::byte* theirs() const noexcept { return segment(1 - seat().rank) + kLines; }

  /// A pair that sends and receives nothing yet. Prepares this rank's channel; a barrier must follow.
  [[nodiscard]] cuda::WordsPair make_pair(cuda::WordsForm form, std::uint32_t batches, std::uint32_t start,
                                          cuda::WordsPlan plan) const {
    cuda::WordsPair pair{};
    pair.out = channel(seat().rank, form, batches, start);
    pair.in = channel(1 - seat().rank, form, batches, start);
    if (cuda::words_region_bytes(form, batches) > region_) throw std::length_error("the region is too small");
    cuda::prepare_words(pair.out);
    pair.arrivals = reinterpret_cast<std::uint32_t*>(arrivals_.get());
    pair.peer = static_cast<std::uint32_t>(1 - seat().rank);
    pair.plan = plan;
    return pair;
  }

  /// Enqueues an exchange and moves the pair's numbers on.
  void submit(cuda::WordsPair& pair, unsigned warps) const {
    cuda::launch(stream_.get(), device_, {{&pair, 1}, warps, failed(), failed() + 16});
    pair.out.generation += cuda::words_generations(pair.out.form, pair.out.batches, pair.from.bytes);
    pair.in.generation += cuda::words_generations(pair.in.form, pair.in.batches, pair.to.bytes);
  }

  /// @throws std::runtime_error where what was submitted does not end; it is let go then.
  void wait(std::chrono::seconds limit) const {
    auto const begin = std::chrono::steady_clock::now();
    while (!stream_.is_done()) {
      if (std::chrono::steady_clock::now() - begin < limit) continue;
      *static_cast<std::uint32_t volatile*>(failed()) = 1;
      stream_.wait();
      auto const left = cuda::words_left(failed()[16]);
      throw std::runtime_error(!left              ? "exchanges take too long, but all have come"
                               : left->for_credit ? "an exchange does not end, it waited for credit"
                                                  : "an exchange does not end, it waited for data");
    }
  }

 private:
  static constexpr std::size_t kLines = 4096;  // before the region: nonce, credits, failed word, left word
  static constexpr std::size_t kCredits = 1024;
  static constexpr std::size_t kFailed = 2048;
  static constexpr std::size_t kArrivals = 64;

  static Segment made(std::size_t bytes) {
    auto segment = Segment::create("/dev/shm", bytes);
    segment.reserve(0, bytes);
    std::memcpy(segment.mapping().get(), &segment.ticket().nonce, sizeof segment.ticket().nonce);
    return segment;
  }
  [[nodiscard]] std::byte* segment(int rank) const noexcept { return segments_.mappings[rank].get(); }
  [[nodiscard]] cuda::WordsChannel channel(int from, cuda::WordsForm form, std::uint32_t batches,
                                           std::uint32_t start) const {
    return {segment(from) + kLines, reinterpret_cast<std::uint32_t*>(segment(from) + kCredits), batches, start, form};
  }
  [[nodiscard]] std::uint32_t* failed() const {
    return reinterpret_cast<std::uint32_t*>(segment(seat().rank) + kFailed);
  }

  std::size_t region_;
  Segment own_;
  Segments segments_;
  cuda::DeviceGuard guard_;
  cuda::WordsDevice device_;
  cuda::Stream stream_;
  std::shared_ptr<void> registrations_[2];
  cuda::DeviceMemory arrivals_{kArrivals};
};

}  // namespace davit::test
