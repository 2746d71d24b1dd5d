// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda/index_ring.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "davit/error.hpp"
#include "transports/wait.hpp"

namespace davit::cuda {
namespace {

constexpr std::size_t kAlignment = 128;  // kernels read 16 bytes at a time; arrays keep off each other's lines

std::size_t rounded(std::size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

IndexRing::IndexRing(std::size_t bytes, std::optional<std::chrono::milliseconds> patience,
                     std::array<cudaStream_t, kStreams> const& streams, std::function<std::optional<Blocked>()> closed)
    : part_bytes_(rounded(std::max(bytes / kParts, std::size_t{4096}))),
      patience_(patience),
      streams_(streams),
      closed_(std::move(closed)),
      memory_(part_bytes_ * kParts) {}

std::byte* IndexRing::take(std::size_t stream, std::size_t bytes) {
  bytes = rounded(bytes);
  if (used_ + bytes > part_bytes_) turn();
  auto* const begin = memory_.get() + part_ * part_bytes_ + used_;
  used_ += bytes;
  used_by_[stream] = true;
  return begin;
}

void IndexRing::turn() {
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    if (used_by_[stream]) parts_[part_].last[stream].record(streams_[stream]);
  }
  used_by_ = {};
  auto const next = (part_ + 1) % kParts;
  auto const start = std::chrono::steady_clock::now();
  Backoff backoff(Eagerness::yield);
  for (auto const& event : parts_[next].last) {
    while (!event.is_done()) {
      if (!backoff.idle() || !patience_ || std::chrono::steady_clock::now() - start < *patience_) continue;
      auto const closed = closed_();
      throw TimeoutError("davit: the index arrays of open row operations fill their " +
                             std::to_string(part_bytes_ * kParts) + " bytes and none was done with within " +
                             std::to_string(patience_->count()) + " ms" +
                             (closed ? ", waiting for rank " + std::to_string(closed->peer) : std::string()),
                         closed ? closed->peer : -1);
    }
  }
  part_ = next;
  used_ = 0;
}

}  // namespace davit::cuda
