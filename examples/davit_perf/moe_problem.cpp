// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "examples/davit_perf/moe.hpp"
#include "examples/support/random.hpp"
#include "transports/host/kernels.hpp"

namespace perf {
namespace {

using support::mix;
using Engine = std::mt19937_64;

/// The logarithm of each expert's popularity; the same on all ranks.
std::vector<double> log_popularity(Options const& options, support::ExpertMap const& map) {
  std::vector<double> logs(static_cast<std::size_t>(options.experts), 0.0);
  if (options.skew == Skew::zipf) {
    for (std::size_t n = 0; n < logs.size(); ++n) logs[n] = -std::log(static_cast<double>(n + 1));
    std::shuffle(logs.begin(), logs.end(), Engine(options.seed));  // the popular ones are not all on rank 0
  } else if (options.skew == Skew::all_to_one) {
    constexpr double before_all_others = 1e6;
    for (std::int64_t expert = 0; expert < map.count(0); ++expert)
      logs[static_cast<std::size_t>(expert)] = before_all_others;
  }
  return logs;
}

}  // namespace

MoeProblem::MoeProblem(Options const& options, std::int64_t tokens, support::World const& world, Device& device)
    : tokens_(tokens),
      top_k_(options.top_k),
      hidden_(options.hidden),
      dtype_(options.dtype),
      rank_(world.rank()),
      ranks_(world.size()),
      seed_(mix(mix(options.seed) + static_cast<std::uint64_t>(world.rank()))),
      map_(options.experts, world.size()),
      device_(device),
      x_(device.allocate(static_cast<std::size_t>(tokens) * row_bytes())) {
  draw_choices(options);
  draw_rows();
}

/// Top K of log-popularity plus Gumbel noise: a draw by popularity without replacement.
void MoeProblem::draw_choices(Options const& options) {
  Engine engine(seed_);
  std::extreme_value_distribution<double> gumbel;
  std::normal_distribution<float> normal;
  auto const logs = log_popularity(options, map_);
  auto const k = static_cast<std::size_t>(top_k_);
  std::vector<double> keys(logs.size());
  std::vector<std::int32_t> order(logs.size());
  std::vector<float> raw(k);
  for (std::int64_t token = 0; token < tokens_; ++token) {
    for (std::size_t expert = 0; expert < keys.size(); ++expert) keys[expert] = logs[expert] + gumbel(engine);
    std::iota(order.begin(), order.end(), 0);
    auto const more_wanted = [&keys](std::int32_t a, std::int32_t b) {
      return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)];
    };
    std::ranges::partial_sort(order, order.begin() + top_k_, more_wanted);
    ids_.insert(ids_.end(), order.begin(), order.begin() + top_k_);

    for (auto& weight : raw) weight = std::exp(normal(engine));
    auto const sum = std::accumulate(raw.begin(), raw.end(), 0.0F);
    for (auto const weight : raw) weights_.push_back(weight / sum);
  }
}

void MoeProblem::draw_rows() {
  Engine engine(mix(seed_));
  std::normal_distribution<float> normal;
  auto const element = size_of(dtype_);
  std::vector<std::byte> rows(static_cast<std::size_t>(tokens_) * row_bytes());
  for (std::size_t at = 0; at < rows.size(); at += element)
    davit::host::store_element(dtype_, normal(engine), rows.data() + at);
  device_.write(x_.get(), rows);
}

void MoeProblem::change_choices(std::uint64_t round) noexcept {
  constexpr int swaps = 4;
  for (std::uint64_t i = 0; i < swaps; ++i) {
    auto const token = [&](std::uint64_t salt) {
      return static_cast<std::int64_t>(mix(seed_ ^ mix(round * swaps + i) ^ salt) %
                                       static_cast<std::uint64_t>(tokens_)) *
             top_k_;
    };
    auto const a = token(1);
    auto const b = token(2);
    if (a == b) continue;
    std::swap_ranges(ids_.begin() + a, ids_.begin() + a + top_k_, ids_.begin() + b);
    std::swap_ranges(weights_.begin() + a, weights_.begin() + a + top_k_, weights_.begin() + b);
  }
}

void MoeProblem::change_rows(std::byte* rows, std::int64_t count, std::uint64_t round) const {
  device_.change(
      RowChange{.rows = rows, .count = count, .hidden = hidden_, .dtype = dtype_, .seed = seed_, .round = round});
}

std::span<std::int32_t const> MoeProblem::ids_of(std::int64_t token) const noexcept {
  return ids().subspan(static_cast<std::size_t>(token * top_k_), static_cast<std::size_t>(top_k_));
}

std::span<float const> MoeProblem::weights_of(std::int64_t token) const noexcept {
  return weights().subspan(static_cast<std::size_t>(token * top_k_), static_cast<std::size_t>(top_k_));
}

std::vector<std::int64_t> MoeSide::by_expert() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(received_rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

}  // namespace perf
