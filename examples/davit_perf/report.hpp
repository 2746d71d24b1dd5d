// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the user sees: a table on stdout, one JSON object a line in a file, progress on a terminal's stderr. Rank 0
/// alone writes; the calls are local and made by all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "examples/davit_perf/json_file.hpp"
#include "examples/davit_perf/measure.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/support/world.hpp"

namespace perf {

enum class Check : std::uint8_t { off, ok, failed };

/// One measured line.
struct Line {
  std::string peer;
  std::int64_t bytes = 0;  ///< a pair (alltoallv), the mean block (allgatherv); moe: as `sent`
  std::int64_t sent = 0;   ///< payload bytes of a rank to all others, the ranks' mean
  Result result;
  Check check = Check::off;
  double crossed = 0;  ///< bytes over a rank's link, up and down, the ranks' mean
  std::string phase;   ///< moe only, as the next
  std::int64_t tokens = 0;
};

class Report {
 public:
  /// Collective. @throws Failure if the JSON file cannot be written.
  Report(support::World const& world, Options const& options);

  /// A note of what runs now; it goes when the line comes.
  void progress(std::string const& what);
  /// @param facts about the device and the peer on it.
  void begin_table(std::string const& peer, std::string const& facts, std::optional<double> ceiling);
  void add(Line const& line);
  /// Further words about the last line, for --verbose.
  void note(std::string const& text);
  /// Geometric mean of the ratios since begin_table.
  void end_table();

 private:
  void clear_progress();
  void write_json(Line const& line);
  /// Share of what the links give; nothing where none are crossed.
  [[nodiscard]] std::optional<double> share_of(Line const& line) const;

  Options const& options_;
  int ranks_;
  bool writes_;
  bool shows_progress_;
  JsonFile json_;
  std::string peer_;
  std::optional<double> ceiling_;  ///< GB/s a direction
  std::vector<double> ratios_;
};

}  // namespace perf
