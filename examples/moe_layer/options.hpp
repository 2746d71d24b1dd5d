// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a user may ask moe_layer for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "davit/expert_group.hpp"
#include "examples/support/failure.hpp"

namespace moe {

enum class Activation : std::uint8_t { relu, silu };
enum class Peer : std::uint8_t { mpi, none };
enum class Where : std::uint8_t { automatic, cuda, host };

struct Options {
  std::string file;
  std::int64_t tokens = 1024;  ///< most of a rank in one batch
  std::int64_t batches = 0;    ///< most; 0: as many as the text has

  std::int64_t experts = 64;
  std::int64_t top_k = 8;
  std::int64_t hidden = 512;
  std::int64_t ffn = 128;
  Activation activation = Activation::relu;
  std::uint64_t seed = 1;

  davit::Dtype dtype = davit::bf16;
  std::optional<davit::Dtype> partial_dtype{};  ///< unset: `dtype`
  davit::Layout layout = davit::Layout::by_expert;
  std::int64_t alignment = 1;
  davit::Reduce reduce = davit::Reduce::grouped;
  int reduce_group = 0;  ///< 0: all ranks of the node

  Peer peer = Peer::mpi;
  Where where = Where::automatic;

  [[nodiscard]] std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(hidden) * size_of(dtype); }
};

/// Names as on the command line.
[[nodiscard]] char const* name_of(Activation activation) noexcept;
[[nodiscard]] char const* name_of(davit::Layout layout) noexcept;
[[nodiscard]] char const* name_of(davit::Reduce reduce) noexcept;

/// Either options, or what to print instead of running.
struct Parsed {
  std::optional<Options> options;
  std::string text;                        ///< help, version or the error
  support::Exit code = support::Exit::ok;  ///< usage: `text` belongs on stderr
};

/// Local, and never throws.
[[nodiscard]] Parsed parse(int argc, char const* const* argv);

}  // namespace moe
