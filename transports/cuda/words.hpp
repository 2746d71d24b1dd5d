// SPDX-License-Identifier: Apache-2.0
/// @file
/// An exchange by one small kernel, the flag inside each unit of data. README.md says who writes what and why no fence
/// is needed; words_layout.hpp where bytes lie.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transports/cuda/words_layout.hpp"

namespace davit::cuda {

/// One direction of a pair as both ends know it. All memory is host memory that both GPUs reach. After an exchange the
/// next one begins with `generation + words_generations(form, batches, bytes)`: every number is used once.
struct WordsChannel {
  std::byte* region;         ///< words_region_bytes, at a multiple of 64; written by the sender alone
  std::uint32_t* credits;    ///< two words in a line of their own, one a bank: number of the last generation that has
                             ///< been read there. Written by the receiver alone
  std::uint32_t batches;     ///< of a bank, at least 1
  std::uint32_t generation;  ///< number of the first that this message takes
  WordsForm form;
};

/// Where a message is taken from: one block, or row after row. Memory that the device reaches, at any address.
struct WordsSource {
  std::byte const* base = nullptr;
  std::uint32_t const* rows = nullptr;  ///< null: one block. Else for each row of the message its number from base
  std::uint32_t bytes = 0;              ///< of the message, at most kMostWordsBytes
  std::uint32_t row_bytes = 0;          ///< with rows
};

/// Where a message goes to. Nothing but its bytes is written.
struct WordsTarget {
  std::byte* base = nullptr;
  std::uint32_t const* rows = nullptr;   ///< null: one block. Else numbers from base
  std::uint32_t const* first = nullptr;  ///< null: row i goes to rows[i]. Else to rows[first[i]] up to, without,
                                         ///< rows[first[i + 1]]: to several places, or none
  std::uint32_t bytes = 0;
  std::uint32_t row_bytes = 0;
};

/// How a pair's share is run. A matter of each rank alone: the other end may do it otherwise.
struct WordsPlan {
  unsigned writers = 1;  ///< blocks that send
  unsigned readers = 1;  ///< blocks that receive; 0: self-clocked, each warp of the writers sends and receives
  double rate = 0;       ///< bytes of the region a nanosecond at which the pair's writers go; 0: as fast as they can
  bool peeks = false;    ///< readers wait for a batch's end before they load it: for many readers
};

struct WordsPair {
  WordsChannel out;
  WordsSource from;
  WordsChannel in;
  WordsTarget to;
  std::uint32_t* arrivals;  ///< two words of device memory, zero before the first exchange; this rank's own, for `in`
  std::uint32_t peer;       ///< for words_left
  WordsPlan plan;
};

struct WordsExchange {
  std::span<WordsPair const> pairs;
  unsigned warps = 8;           ///< of a block, 1 to kMostWordsWarps
  std::uint32_t const* failed;  ///< host memory: once it is not 0, waits are given up
  std::uint32_t* left;          ///< host memory: where a kernel that gives up says what it waited for, else untouched
};

inline constexpr std::uint32_t kMostWordsBytes = std::uint32_t{1} << 31U;
inline constexpr std::size_t kMostWordsRegion = std::size_t{1} << 31U;
inline constexpr unsigned kMostWordsPairs = 127;
inline constexpr unsigned kMostWordsWarps = 16;

/// What a kernel that gave up has waited for; of several waits, one.
struct WordsLeft {
  std::uint32_t peer;
  bool for_credit;  ///< else for data
};
/// @param left the word of the exchange; nothing if no kernel has given up.
[[nodiscard]] inline std::optional<WordsLeft> words_left(std::uint32_t left) noexcept {
  if (left == 0) return std::nullopt;
  return WordsLeft{(left - 1) / 2, left % 2 == 0};
}

/// What launches need to know of a device. Takes a millisecond: ask once.
struct WordsDevice {
  bool dependent_launch;  ///< programmatic, see launch
  unsigned most_blocks;   ///< that are there at once
  double cycles_a_ns;
};
[[nodiscard]] WordsDevice words_device(int device);

/// Enqueues one kernel that does all sends and receives of a call on this rank; pairs without bytes are left out.
/// Both ends agree about regions, forms, numbers and bytes. Source, target and lists stay until it has run. Where the
/// device can, it starts while the kernel before it on the stream is ending, and waits before it touches the caller's
/// memory.
///
/// All its blocks must come to run together unless every pair is split into writers and readers and takes at most two
/// generations; so the blocks of exchanges that may wait for each other must fit the device beside each other.
/// @throws UsageError where arguments are out of bounds, SystemError.
void launch(cudaStream_t stream, WordsDevice const& device, WordsExchange const& exchange);

/// Makes a region and its credits ready for a first exchange with number `generation`; regions of zeros are ready for
/// number 1. Before either end uses them; never needed again, however often numbers wrap.
void prepare_words(WordsChannel const& channel) noexcept;

/// Launches each kernel once, without work.
void load_words_kernels(cudaStream_t stream);

}  // namespace davit::cuda
