// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/report.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>

#include "davit/version.hpp"

namespace moe {
namespace {

using Long = long long;

std::string file_name(std::string const& path) { return path.substr(path.find_last_of('/') + 1); }

std::string megabytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f MB", static_cast<double>(bytes) / 1e6);
  return text.data();
}

void print_crossing(char const* name, std::uint64_t rows, std::int64_t least, std::uint64_t bytes) {
  std::printf("  %-34s %10llu %10lld %14s\n", name, static_cast<unsigned long long>(rows), static_cast<Long>(least),
              megabytes(bytes).c_str());
}

void print_bytes(char const* name, std::uint64_t bytes) {
  std::printf("  %-34s %10s %10s %14s\n", name, "", "", megabytes(bytes).c_str());
}

void print_crossings(Options const& options, Outcome const& outcome) {
  auto const& tally = outcome.tally;
  auto const& route = outcome.moved.at(static_cast<std::size_t>(Phase::route));
  auto const& dispatch = outcome.moved.at(static_cast<std::size_t>(Phase::dispatch));
  auto const& combine = outcome.moved.at(static_cast<std::size_t>(Phase::combine));
  auto const back = options.reduce == davit::Reduce::by_k ? tally.choices_away : tally.pairs_away;
  std::printf("\n  %-34s %10s %10s %14s\n", "crossings, all ranks together", "rows", "least", "bytes");
  print_crossing("dispatch up, once a token", dispatch.rows_up, tally.tokens_away, dispatch.bytes_up);
  print_crossing("dispatch down, once a reader", dispatch.rows_down, tally.pairs_away, dispatch.bytes_down);
  print_crossing("dispatch down, not needed", dispatch.rows_slack, 0, dispatch.rows_slack * options.row_bytes());
  print_crossing("kept on the token's rank", dispatch.bytes_kept / options.row_bytes(), tally.tokens_kept,
                 dispatch.bytes_kept);
  print_crossing("combine up", combine.rows_up, back, combine.bytes_up);
  print_crossing("combine down", combine.rows_down, back, combine.bytes_down);
  print_bytes("ids and weights", route.bytes_ids);
  print_bytes("call cards", route.bytes_cards + dispatch.bytes_cards + combine.bytes_cards);
}

/// One character an expert, or one for several where there are many: the load by the largest one.
std::string bars_of(std::span<std::int64_t const> load, std::int64_t most) {
  constexpr std::array levels{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t widest = 64;
  auto const together = (load.size() + widest - 1) / widest;
  std::string bars;
  for (std::size_t first = 0; first < load.size(); first += together) {
    auto const part = load.subspan(first, std::min(together, load.size() - first));
    auto const sum = std::accumulate(part.begin(), part.end(), std::int64_t{0});
    auto const of = most * static_cast<std::int64_t>(part.size());
    auto const level = of > 0 ? (sum * 8 + of - 1) / of : 0;  // rounded up: none but an idle expert is blank
    bars += levels.at(static_cast<std::size_t>(level));
  }
  return bars;
}

void print_load(Options const& options, int ranks, Tally const& tally) {
  support::ExpertMap const map(options.experts, ranks);
  auto const [least, most] = std::ranges::minmax(tally.load);
  std::printf("\n  rows an expert: %lld to %lld, mean %.0f\n", static_cast<Long>(least), static_cast<Long>(most),
              static_cast<double>(tally.choices) / static_cast<double>(options.experts));
  for (int rank = 0; rank < ranks; ++rank) {
    auto const mine =
        std::span(tally.load)
            .subspan(static_cast<std::size_t>(map.first(rank)), static_cast<std::size_t>(map.count(rank)));
    auto const rows = std::accumulate(mine.begin(), mine.end(), std::int64_t{0});
    std::printf("  rank %-3d %5.1f %%  |%s|\n", rank,
                100 * static_cast<double>(rows) / static_cast<double>(std::max<std::int64_t>(tally.choices, 1)),
                bars_of(mine, most).c_str());
  }
}

void print_time(char const* name, double davit, double const* mpi) {
  std::printf("  %-34s %10.3f", name, 1e3 * davit);
  if (mpi != nullptr) std::printf(" %10.3f %14.2f", 1e3 * *mpi, *mpi / davit);
  std::puts("");
}

void print_times(Outcome const& outcome) {
  auto const* const mpi = outcome.mpi ? &*outcome.mpi : nullptr;
  std::printf("\n  %-34s %10s", "ms a batch, slowest rank, median", "davit");
  if (mpi != nullptr) std::printf(" %10s %14s", "MPI", "MPI / davit");
  std::puts("");
  for (std::size_t phase = 0; phase < phases; ++phase) {
    print_time(phase_names.at(phase), outcome.davit.seconds.at(phase),
               mpi != nullptr ? &mpi->seconds.at(phase) : nullptr);
  }
  print_time("route, dispatch and combine", outcome.davit.exchange, mpi != nullptr ? &mpi->exchange : nullptr);
}

/// Bits are compared with the reference's, errors are distances from the exact sum.
void print_check(char const* name, Side const& side) {
  auto const& found = side.found;
  std::printf("  %-6s %lld elements, ", name, static_cast<Long>(found.elements));
  if (!side.compares_bits) {
    std::printf("experts add in another order than the reference");
  } else if (found.unequal == 0) {
    std::printf("all bits equal");
  } else {
    std::printf("%lld NOT EQUAL", static_cast<Long>(found.unequal));
  }
  std::printf("; largest error %.2e, relative %.2e of %.2e allowed", found.absolute, found.relative, side.tolerance);
  if (found.too_far != 0) std::printf(", EXCEEDED by %lld", static_cast<Long>(found.too_far));
  std::puts("");
}

}  // namespace

void print_head(Options const& options, int ranks) {
  std::printf("moe_layer: davit %s", std::string(davit::version()).c_str());
  if (options.peer == Peer::mpi) std::printf(" beside MPI_Alltoallv (%s)", support::mpi_library().c_str());
  std::printf(", %d rank%s\n", ranks, ranks == 1 ? "" : "s");
  std::printf("  layer: %lld experts, top %lld, hidden %lld, ffn %lld (%s), %s rows, %s, %s, seed %llu\n",
              static_cast<Long>(options.experts), static_cast<Long>(options.top_k), static_cast<Long>(options.hidden),
              static_cast<Long>(options.ffn), name_of(options.activation), davit::name_of(options.dtype),
              name_of(options.layout), name_of(options.reduce), static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
}

void print_outcome(Options const& options, int ranks, Outcome const& outcome) {
  std::printf("  text:  %s, %lld bytes; %lld tokens, %lld to %lld a rank, in %lld batch%s of at most %lld a rank\n",
              file_name(options.file).c_str(), static_cast<Long>(outcome.text_bytes),
              static_cast<Long>(outcome.tally.tokens), static_cast<Long>(outcome.fewest_tokens),
              static_cast<Long>(outcome.most_tokens), static_cast<Long>(outcome.batches),
              outcome.batches == 1 ? "" : "es", static_cast<Long>(options.tokens));
  std::printf("  rows:  %s\n", outcome.device.c_str());
  print_crossings(options, outcome);
  print_load(options, ranks, outcome.tally);
  print_times(outcome);
  std::puts("");
  print_check("davit:", outcome.davit);
  if (outcome.mpi) print_check("MPI:", *outcome.mpi);
  std::printf("  %.1f s in all\n", outcome.seconds);
  std::printf("%s: largest error %.2e absolute, %.2e relative\n", outcome.ok() ? "PASS" : "FAIL",
              outcome.davit.found.absolute, outcome.davit.found.relative);
  std::fflush(stdout);
}

}  // namespace moe
