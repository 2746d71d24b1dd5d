// SPDX-License-Identifier: Apache-2.0
/// @file
/// Two processes under mpirun, a segment each that both have mapped and registered, and in each a words channel.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
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
        own_(Segment::create("/dev/shm", region + kLines)),
        guard_(seat().device),
        device_(cuda::words_device(seat().device)) {
    own_.reserve(0, region + kLines);
    SegmentTicket const ticket = own_.ticket();
    SegmentTicket tickets[2];
    MPI_Allgather(&ticket, sizeof ticket, MPI_BYTE, tickets, sizeof ticket, MPI_BYTE, MPI_COMM_WORLD);
    theirs_ = Segment::attach(tickets[1 - seat().rank]);
    if (theirs_ == nullptr) throw std::runtime_error("cannot map the other rank's segment");
    own_registration_ = cuda::backend().register_memory(seat().device, own_.mapping(), region + kLines);
    their_registration_ = cuda::backend().register_memory(seat().device, theirs_, region + kLines);
    DAVIT_CUDA_CHECK(cudaMemset(arrivals_.get(), 0, kArrivals));
    cuda::load_words_kernels(stream_.get());
    DAVIT_CUDA_CHECK(cudaDeviceSynchronize());
    barrier();
  }

  [[nodiscard]] cuda::WordsDevice const& device() const noexcept { return device_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
  [[nodiscard]] std::byte* own() const noexcept { return own_.mapping().get(); }
  [[nodiscard]] std::byte* theirs() const noexcept { return theirs_.get(); }

  /// A pair that sends and receives nothing yet. Prepares this rank's channel; a barrier must follow.
  [[nodiscard]] cuda::WordsPair make_pair(cuda::WordsForm form, std::uint32_t batches, std::uint32_t start,
                                          cuda::WordsPlan plan) const {
    cuda::WordsPair pair{};
    pair.out = channel(own(), form, batches, start);
    pair.in = channel(theirs(), form, batches, start);
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
  static constexpr std::size_t kLines = 4096;  // behind the region: credits, failed word, left word
  static constexpr std::size_t kArrivals = 64;

  [[nodiscard]] cuda::WordsChannel channel(std::byte* segment, cuda::WordsForm form, std::uint32_t batches,
                                           std::uint32_t start) const {
    return {segment, reinterpret_cast<std::uint32_t*>(segment + region_), batches, start, form};
  }
  [[nodiscard]] std::uint32_t* failed() const { return reinterpret_cast<std::uint32_t*>(own() + region_ + 1024); }

  std::size_t region_;
  Segment own_;
  Mapping theirs_;
  cuda::DeviceGuard guard_;
  cuda::WordsDevice device_;
  cuda::Stream stream_;
  std::shared_ptr<void> own_registration_;
  std::shared_ptr<void> their_registration_;
  cuda::DeviceMemory arrivals_{kArrivals};
};

}  // namespace davit::test
