// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/moe_layer/matrix.hpp"
#include "examples/moe_layer/rows.hpp"
#include "examples/support/random.hpp"

namespace moe {
namespace {

using support::mix;
using support::symmetric;

constexpr std::size_t block = 32;  // rows at a time, so that a block and its products stay in the caches

/// Streams of random numbers that have nothing to do with each other.
enum class Stream : std::uint64_t { words, positions, gate, experts };

std::uint64_t key_of(Options const& options, Stream stream, std::uint64_t number = 0) {
  return mix(mix(mix(options.seed) + static_cast<std::uint64_t>(stream)) + number);
}

/// Of variance 1 / rows: a row of variance 1 keeps it.
std::vector<float> random_matrix(std::uint64_t key, std::int64_t rows, std::int64_t columns) {
  std::vector<float> matrix(static_cast<std::size_t>(rows * columns));
  auto const scale = std::sqrt(3.0F / static_cast<float>(rows));
  for (auto& element : matrix) element = scale * symmetric(mix(key++));
  return matrix;
}

}  // namespace

Front::Front(Options const& options)
    : options_(options), gate_(random_matrix(key_of(options, Stream::gate), options.hidden, options.experts)) {}

/// Nine parts the word, four its place: a word's experts are much the same everywhere, but no two rows are equal.
void Front::embed(Token const& token, std::span<float> row) const {
  auto word = key_of(options_, Stream::words, token.word);
  auto position = key_of(options_, Stream::positions, token.position);
  for (auto& value : row) value = 1.6F * symmetric(mix(word++)) + 0.7F * symmetric(mix(position++));
}

void Front::choose(std::span<float const> scores, Batch& batch) const {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  auto const score = [&](std::int32_t expert) { return scores[static_cast<std::size_t>(expert)]; };
  auto const last = order.begin() + static_cast<std::ptrdiff_t>(options_.top_k);
  std::partial_sort(order.begin(), last, order.end(),
                    [&](auto a, auto b) { return score(a) > score(b) || (score(a) == score(b) && a < b); });
  float sum = 0;
  for (auto chosen = order.begin(); chosen != last; ++chosen) sum += std::exp(score(*chosen) - score(order.front()));
  for (auto chosen = order.begin(); chosen != last; ++chosen) {
    batch.ids.push_back(*chosen);
    batch.weights.push_back(std::exp(score(*chosen) - score(order.front())) / sum);
  }
}

Batch Front::make_batch(std::span<Token const> tokens) const {
  auto const hidden = static_cast<std::size_t>(options_.hidden);
  auto const experts = static_cast<std::size_t>(options_.experts);
  Batch batch;
  batch.tokens = static_cast<std::int64_t>(tokens.size());
  batch.rows.resize(tokens.size() * options_.row_bytes());
  std::vector<float> x(block * hidden);
  std::vector<float> scores(block * experts);
  for (std::size_t first = 0; first < tokens.size(); first += block) {
    auto const count = std::min(block, tokens.size() - first);
    std::span<float> const rows(x.data(), count * hidden);
    for (std::size_t i = 0; i < count; ++i) embed(tokens[first + i], rows.subspan(i * hidden, hidden));
    narrow(options_.dtype, rows, batch.rows.data() + first * options_.row_bytes());
    round_to(options_.dtype, rows);  // the gate sees what the experts see
    multiply(rows, gate_, {scores.data(), count * experts}, count);
    for (std::size_t i = 0; i < count; ++i) choose({scores.data() + i * experts, experts}, batch);
  }
  return batch;
}

Expert::Expert(Options const& options, std::int64_t number)
    : options_(options),
      first_(random_matrix(key_of(options, Stream::experts, 2 * static_cast<std::uint64_t>(number)), options.hidden,
                           options.ffn)),
      second_(random_matrix(key_of(options, Stream::experts, 2 * static_cast<std::uint64_t>(number) + 1), options.ffn,
                            options.hidden)) {}

void Expert::activate(std::span<float> values) const {
  if (options_.activation == Activation::relu) {
    for (auto& value : values) value = std::max(value, 0.0F);
  } else {
    for (auto& value : values) value = value / (1.0F + std::exp(-value));
  }
}

void Expert::apply(std::byte* rows, std::int64_t count) const {
  auto const hidden = static_cast<std::size_t>(options_.hidden);
  auto const ffn = static_cast<std::size_t>(options_.ffn);
  std::vector<float> x(block * hidden);
  std::vector<float> inner(block * ffn);
  auto const total = static_cast<std::size_t>(count);
  for (std::size_t first = 0; first < total; first += block) {
    auto const here = std::min(block, total - first);
    auto* const at = rows + first * options_.row_bytes();
    std::span<float> const values(x.data(), here * hidden);
    std::span<float> const between(inner.data(), here * ffn);
    widen(options_.dtype, at, values);
    multiply(values, first_, between, here);
    activate(between);
    multiply(between, second_, values, here);
    narrow(options_.dtype, values, at);
  }
}

}  // namespace moe
