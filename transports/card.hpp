// SPDX-License-Identifier: Apache-2.0
/// @file
/// Call cards: what a rank tells one peer about one call, before its first chunk.
#pragma once

#include <cstdint>

namespace davit {

/// What a card belongs to. Both ranks of a pair must name the same.
enum class Operation : std::uint16_t {
  none,
  barrier,
  alltoallv,
  alltoallv_init,
  allgatherv,
  reduce_scatterv,
  prepare,
  split,
  allocate,
  expert_group,
  route,
  dispatch,
  combine,
};

/// Name as used in messages.
[[nodiscard]] constexpr char const* name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::none:
      return "nothing";
    case Operation::barrier:
      return "barrier";
    case Operation::alltoallv:
      return "alltoallv";
    case Operation::alltoallv_init:
      return "alltoallv_init";
    case Operation::allgatherv:
      return "allgatherv";
    case Operation::reduce_scatterv:
      return "reduce_scatterv";
    case Operation::prepare:
      return "prepare";
    case Operation::split:
      return "split";
    case Operation::expert_group:
      return "expert group";
    case Operation::allocate:
      return "allocate";
    case Operation::route:
      return "route";
    case Operation::dispatch:
      return "dispatch";
    case Operation::combine:
      return "combine";
  }
  return "unknown";
}

/// Bits of Card::flags.
inline constexpr std::uint16_t kCardRefused = 1;   ///< the writer takes no part; its reason stands in the outbox
inline constexpr std::uint16_t kCardReadable = 2;  ///< the block sent lies where the reader can copy it from itself
inline constexpr std::uint16_t kCardReads = 4;     ///< the writer can copy blocks from where they lie
inline constexpr std::uint16_t kCardDevice =
    8;  ///< a GPU pushes: if its rank fails, what it was to push runs out as it is

/// One card: a cache line. `number` is stored last, with release; a card is written over only when it was read.
struct alignas(64) Card {
  std::uint32_t number;  ///< of the call, counted alike on all ranks
  Operation operation;
  std::uint16_t flags;
  std::uint64_t sent;      ///< what the writer sends to the reader: bytes, or another value that both must agree on
  std::uint64_t expected;  ///< what the writer expects of the reader, in the same measure
  std::uint64_t address;   ///< direct way: where the block lies in the writer's memory
  std::uint64_t detail;    ///< the operation's own settings, equal on all ranks
  std::uint32_t base;      ///< the pair's data counter before this call's first chunk
  std::uint32_t chunks;    ///< chunks this call pushes to the reader if it goes through slots
  std::uint64_t note;      ///< for messages: what the operation says of itself, dtypes for instance
};
static_assert(sizeof(Card) == 64);

inline constexpr std::uint32_t kCardRing = 64;      ///< cards of a pair that may be unread
inline constexpr std::uint32_t kReasonBytes = 256;  ///< of a refusal's text, terminator included

}  // namespace davit
