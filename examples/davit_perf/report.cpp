// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/report.hpp"

#include <unistd.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "davit/version.hpp"
#include "examples/support/sizes.hpp"

namespace perf {
namespace {

constexpr std::array check_names{"-", "ok", "FAILED"};
constexpr std::string_view total_phase = "total";  // the one whose ratio stands for a whole exchange

double ratio_of(Line const& line) { return line.result.peer.p50 / line.result.davit.p50; }

double gigabytes_a_second(Line const& line) { return static_cast<double>(line.sent) / line.result.davit.p50 / 1000; }

std::string microseconds(double us) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), us < 1000 ? "%.2f" : "%.1f", us);
  return text.data();
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%7.1f%%", 100 * share);
  return text.data();
}

char const* name_of(davit::Path path) {
  return path == davit::Path::automatic ? "auto" : path == davit::Path::slots ? "slots" : "direct";
}

davit::Path path_of(Options const& options) { return options.path.value_or(davit::environment().path); }

}  // namespace

Report::Report(support::World const& world, Options const& options)
    : options_(options),
      ranks_(world.size()),
      writes_(world.is_root()),
      shows_progress_(writes_ && isatty(STDERR_FILENO) != 0),
      json_(world, options.json) {}

void Report::clear_progress() {
  if (shows_progress_) std::fputs("\r\033[K", stderr);
}

void Report::progress(std::string const& what) {
  if (!shows_progress_) return;
  clear_progress();
  std::fprintf(stderr, "%s ...", what.c_str());
  std::fflush(stderr);
}

void Report::begin_table(std::string const& peer, std::string const& facts, std::optional<double> ceiling) {
  peer_ = peer;
  ceiling_ = ceiling;
  ratios_.clear();
  if (!writes_) return;
  clear_progress();
  bool const is_moe = options_.operation == Operation::moe;
  std::printf("davit_perf %s: davit %s beside %s (%s), %d rank%s, skew %s, path %s, seed %llu\n",
              perf::name_of(options_.operation), std::string(davit::version()).c_str(), peer.c_str(), facts.c_str(),
              ranks_, ranks_ == 1 ? "" : "s", perf::name_of(options_.skew), name_of(path_of(options_)),
              static_cast<unsigned long long>(options_.seed));
  if (is_moe) {
    std::printf("hidden %lld, experts %lld, top_k %lld, %s\n", static_cast<long long>(options_.hidden),
                static_cast<long long>(options_.experts), static_cast<long long>(options_.top_k),
                davit::name_of(options_.dtype));
  }
  if (options_.operation == Operation::reduce_scatterv) {
    std::printf("%s, in whole numbers whose sums are exact\n", davit::name_of(options_.dtype));
  }
  if (ceiling_) {
    std::printf("ceiling: %.1f GB/s a direction, copies of 4 MiB both ways at once on all ranks\n", *ceiling_);
  }
  std::printf("%d batches a side; microseconds a call of the slowest rank, p50 and p99; ratio = %s / davit\n",
              options_.batches, peer.c_str());
  if (is_moe) std::printf("%8s %-9s", "tokens", "phase");
  std::printf("%9s %11s %11s %11s %11s %7s %8s%s  %s\n", "bytes", "davit", "p99", peer.c_str(), "p99", "ratio", "GB/s",
              ceiling_ ? " ceiling" : "", "check");
  std::fflush(stdout);
}

std::optional<double> Report::share_of(Line const& line) const {
  if (!ceiling_ || line.crossed == 0) return std::nullopt;
  return line.crossed / line.result.davit.p50 / 1000 / (2 * *ceiling_);
}

void Report::add(Line const& line) {
  bool const is_part = options_.operation == Operation::moe && line.phase != total_phase;
  if (!is_part) ratios_.push_back(ratio_of(line));
  if (!writes_) return;
  clear_progress();
  if (options_.operation == Operation::moe) {
    std::printf("%8lld %-9s", static_cast<long long>(line.tokens), line.phase.c_str());
  }
  auto const& [davit, peer, batches, iterations] = line.result;
  std::string share;
  if (ceiling_) share = share_of(line) ? percent(*share_of(line)) : "       -";
  std::printf("%9s %11s %11s %11s %11s %7.2f %8.2f%s  %s\n", support::format_size(line.bytes).c_str(),
              microseconds(davit.p50).c_str(), microseconds(davit.p99).c_str(), microseconds(peer.p50).c_str(),
              microseconds(peer.p99).c_str(), ratio_of(line), gigabytes_a_second(line), share.c_str(),
              check_names.at(static_cast<std::size_t>(line.check)));
  std::fflush(stdout);
  if (json_.is_open()) write_json(line);
}

void Report::note(std::string const& text) {
  if (!writes_) return;
  clear_progress();
  std::printf("  %s\n", text.c_str());
}

void Report::end_table() {
  if (!writes_ || ratios_.empty()) return;
  clear_progress();
  double logarithms = 0;
  for (double const ratio : ratios_) logarithms += std::log(ratio);
  std::printf("geometric mean of the ratios to %s%s: %.2f\n\n", peer_.c_str(),
              options_.operation == Operation::moe ? " (total)" : "",
              std::exp(logarithms / static_cast<double>(ratios_.size())));
  std::fflush(stdout);
}

void Report::write_json(Line const& line) {
  auto const& [davit, peer, batches, iterations] = line.result;
  nlohmann::ordered_json object{{"op", perf::name_of(options_.operation)},
                                {"device", perf::name_of(options_.device)},
                                {"ranks", ranks_},
                                {"bytes", line.bytes},
                                {"davit_us", davit.p50},
                                {"p99_us", davit.p99},
                                {"peer", line.peer},
                                {"peer_us", peer.p50},
                                {"peer_p99_us", peer.p99},
                                {"ratio", ratio_of(line)},
                                {"gbps", gigabytes_a_second(line)},
                                {"ceiling_gbps", nullptr},
                                {"ceiling_share", nullptr},
                                {"version", davit::version()},
                                {"batches", batches},
                                {"iterations", iterations},
                                {"davit_min_us", davit.min},
                                {"peer_min_us", peer.min},
                                {"skew", perf::name_of(options_.skew)},
                                {"path", name_of(path_of(options_))},
                                {"seed", options_.seed},
                                {"check", nullptr}};
  if (line.check != Check::off) object["check"] = line.check == Check::ok;
  if (ceiling_) object["ceiling_gbps"] = *ceiling_;
  if (auto const share = share_of(line)) object["ceiling_share"] = *share;
  if (options_.operation == Operation::reduce_scatterv) object["dtype"] = davit::name_of(options_.dtype);
  if (options_.operation == Operation::moe) {
    object.update({{"phase", line.phase},
                   {"tokens", line.tokens},
                   {"hidden", options_.hidden},
                   {"experts", options_.experts},
                   {"top_k", options_.top_k},
                   {"dtype", davit::name_of(options_.dtype)}});
  }
  json_.add(object);
}

}  // namespace perf
