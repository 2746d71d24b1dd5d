// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a user may ask davit_perf for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "davit/dtype.hpp"
#include "davit/options.hpp"
#include "examples/support/failure.hpp"

namespace perf {

enum class Operation : std::uint8_t { alltoallv, allgatherv, reduce_scatterv, moe, limits };
enum class Where : std::uint8_t { host, cuda };
enum class Skew : std::uint8_t { uniform, zipf, all_to_one };

/// Names as on the command line and in the JSON.
[[nodiscard]] char const* name_of(Operation operation) noexcept;
[[nodiscard]] char const* name_of(Skew skew) noexcept;
[[nodiscard]] char const* name_of(Where where) noexcept;

struct Options {
  Operation operation = Operation::alltoallv;
  Where device = Where::host;
  std::vector<std::string> peers;
  std::string json;  ///< file; empty: none
  int batches = 0;
  std::uint64_t seed = 1;
  Skew skew = Skew::uniform;
  std::optional<davit::Path> path;  ///< unset: as the environment says
  bool check = false;
  bool verbose = false;

  // alltoallv, allgatherv, reduce_scatterv, limits
  std::int64_t min_bytes = 1 << 10;
  std::int64_t max_bytes = 4 << 20;

  davit::Dtype dtype = davit::bf16;  ///< reduce_scatterv, moe

  // moe
  std::vector<std::int64_t> tokens{4096};
  std::int64_t hidden = 2048;
  std::int64_t experts = 64;
  std::int64_t top_k = 8;
};

/// Either options, or what to print instead of running.
struct Parsed {
  std::optional<Options> options;
  std::string text;                        ///< help, version or the error
  support::Exit code = support::Exit::ok;  ///< usage: `text` belongs on stderr
};

/// Local, and never throws.
[[nodiscard]] Parsed parse(int argc, char const* const* argv);

}  // namespace perf
