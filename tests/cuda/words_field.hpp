// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks that exchange by words kernels, all in one process and on one GPU: a stream each, regions in pinned memory.
/// Every byte of what they receive, and of what lies between, is compared with a copy made by the host.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/cuda/handles.hpp"
#include "transports/cuda/words.hpp"

namespace davit::test {

/// What one rank sends another. Offsets are from the pair's areas.
struct Message {
  int from = 0;
  int to = 0;
  std::uint32_t bytes = 0;
  std::size_t from_offset = 0;
  std::size_t to_offset = 0;
  std::uint32_t from_row_bytes = 0;  ///< 0: one block
  std::vector<std::uint32_t> from_rows;
  std::uint32_t to_row_bytes = 0;
  std::vector<std::uint32_t> to_rows;
  std::vector<std::uint32_t> to_first;  ///< empty: each row to one place
};

struct FieldSetup {
  int ranks = 2;
  cuda::WordsForm form = cuda::WordsForm::unit12;
  std::uint32_t batches = 4;  ///< of a bank
  std::uint32_t start = 1;    ///< number of the first generation
  cuda::WordsPlan plan;
  unsigned warps = 4;
  std::size_t area = std::size_t{128} << 10U;  ///< bytes of a pair's memory at each end
};

[[nodiscard]] std::string text_of(FieldSetup const& setup);

class Field {
 public:
  static constexpr std::size_t kMargin = 64;  ///< of an area, which messages leave alone

  /// Loads all kernels that it launches, and prepares regions.
  explicit Field(FieldSetup setup);

  /// A message of each pair at most, all ranks at once; data are new each time. Fails the test where a byte is wrong or
  /// an exchange does not end. @param late the rank that comes after `delay`, -1 for none
  void exchange(std::vector<Message> const& messages, int late = -1,
                std::chrono::milliseconds delay = std::chrono::milliseconds(0));

  /// Several exchanges that follow each other without the host, to places of their own.
  void exchange_in_a_row(std::vector<std::vector<Message>> const& calls);

  /// One rank's part alone, submitted and not waited for: numbers move on for its directions.
  void submit(int rank, std::vector<Message> const& messages);
  /// Waits for all ranks' streams. @returns false, and has released them, if they take longer.
  bool finish(std::chrono::milliseconds limit);

  void say_failed(int rank) { *static_cast<std::uint32_t volatile*>(word(rank, 0)) = 1; }
  [[nodiscard]] std::uint32_t left(int rank) const { return *static_cast<std::uint32_t volatile*>(word(rank, 1)); }
  [[nodiscard]] cudaStream_t stream(int rank) const { return sides_[static_cast<std::size_t>(rank)].stream.get(); }
  [[nodiscard]] std::byte* send_area(int rank, int peer) const;
  [[nodiscard]] std::byte* receive_area(int rank, int peer) const;
  [[nodiscard]] cuda::WordsDevice const& device() const { return device_; }

 private:
  struct Side {
    cuda::Stream stream;
    cuda::DeviceMemory send;
    cuda::DeviceMemory receive;
    cuda::DeviceMemory arrivals;
    std::vector<std::byte> sent;      ///< what lies in `send`
    std::vector<std::byte> expected;  ///< in `receive`
  };
  struct Direction {
    std::uint32_t next_to_send = 0;
    std::uint32_t next_to_receive = 0;
  };

  [[nodiscard]] std::uint32_t* word(int rank, int which) const;
  [[nodiscard]] Direction& direction(int from, int to);
  [[nodiscard]] cuda::WordsChannel channel(int from, int to, std::uint32_t generation) const;
  [[nodiscard]] std::uint32_t const* list(std::vector<std::uint32_t> const& values);
  [[nodiscard]] std::size_t area(int peer) const { return static_cast<std::size_t>(peer) * setup_.area; }
  void begin_round();
  void expect(Message const& message);
  void end_round(std::vector<Message> const& messages);
  void compare(int rank);

  FieldSetup setup_;
  cuda::WordsDevice device_;
  std::size_t channel_bytes_;
  cuda::PinnedMemory channels_;
  cuda::PinnedMemory words_;
  cuda::PinnedMemory lists_;
  std::size_t lists_used_ = 0;
  std::vector<Side> sides_;
  std::vector<Direction> directions_;
  std::uint32_t round_ = 0;
};

}  // namespace davit::test
