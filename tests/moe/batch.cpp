// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "transports/host/kernels.hpp"

namespace davit::test {
namespace {

std::uint64_t mixed(std::uint64_t word) noexcept {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

std::uint64_t row_seed(std::uint64_t salt, std::uint64_t array, int source, std::int64_t token) noexcept {
  return mixed(mixed(salt + array * 0x9e3779b97f4a7c15ULL) + static_cast<std::uint64_t>(source) * 1000003 +
               static_cast<std::uint64_t>(token) * 7919);
}

/// Numbers of many sizes, so that the order of a sum shows in its bits; small enough for f16.
void fill_numbers(std::uint64_t seed, Dtype dtype, std::span<std::byte> row) noexcept {
  auto const size = size_of(dtype);
  int const spread = dtype == f32 ? 12 : 6;
  for (std::size_t at = 0; at < row.size(); at += size) {
    auto const word = mixed(seed + at);
    auto const mantissa = 1.0F + static_cast<float>(word & 0x7fffff) * 0x1p-23F;
    auto const exponent = static_cast<int>((word >> 23) % static_cast<unsigned>(2 * spread + 1)) - spread;
    auto const value = std::ldexp(mantissa, exponent);
    host::store_element(dtype, (word >> 63) != 0 ? -value : value, row.data() + at);
  }
}

}  // namespace

std::int64_t Batch::tokens(int rank) const {
  return static_cast<std::int64_t>(ids[static_cast<std::size_t>(rank)].size()) / options.top_k;
}

std::size_t Batch::row_bytes() const { return static_cast<std::size_t>(options.hidden) * size_of(options.dtype); }

void Batch::fill_row(std::size_t array, int source, std::int64_t token, std::span<std::byte> row) const {
  if (array == 0 && x) {
    auto const size = size_of(options.dtype);
    for (std::size_t at = 0; at < row.size(); at += size) {
      host::store_element(options.dtype, x(source, token, static_cast<std::int64_t>(at / size)), row.data() + at);
    }
    return;
  }
  auto const seed = row_seed(salt, array, source, token);
  for (std::size_t at = 0; at < row.size(); at += 8) {
    auto const word = mixed(seed + at);
    std::memcpy(row.data() + at, &word, std::min<std::size_t>(8, row.size() - at));
  }
}

void Batch::fill_expert_row(int source, std::int64_t token, std::int64_t expert, std::span<std::byte> row) const {
  if (identity) return fill_row(0, source, token, row);
  fill_numbers(row_seed(salt, 1000 + static_cast<std::uint64_t>(expert), source, token), options.dtype, row);
}

void Batch::fill_bias(int rank, std::int64_t token, Dtype dtype, std::span<std::byte> row) const {
  fill_numbers(row_seed(salt, 999, rank, token), dtype, row);
}

std::string Batch::text() const {
  std::string text = "R " + std::to_string(ranks) + ", E " + std::to_string(options.experts) + ", K " +
                     std::to_string(options.top_k) + ", H " + std::to_string(options.hidden) + ", C " +
                     std::to_string(options.max_tokens) + ", " + name_of(options.dtype) + ", partial " +
                     (options.partial_dtype ? name_of(*options.partial_dtype) : "unset") + ", reduce_group " +
                     std::to_string(options.reduce_group) + ", T";
  for (int rank = 0; rank < ranks; ++rank) text += " " + std::to_string(tokens(rank));
  return text;
}

Batch chosen_batch(int ranks, ExpertGroupOptions const& options, std::vector<std::int64_t> const& tokens,
                   std::vector<float> const& weights,
                   std::function<std::vector<std::int64_t>(int rank, std::int64_t token)> const& choose) {
  Batch batch{ranks, options};
  for (int rank = 0; rank < ranks; ++rank) {
    auto& ids = batch.ids.emplace_back();
    auto& of_rank = batch.weights.emplace_back();
    for (std::int64_t token = 0; token < tokens[static_cast<std::size_t>(rank)]; ++token) {
      auto const chosen = choose(rank, token);
      ids.insert(ids.end(), chosen.begin(), chosen.end());
      of_rank.insert(of_rank.end(), weights.begin(), weights.end());
    }
  }
  return batch;
}

ExpertGroupOptions random_options(Random& random, int ranks) {
  ExpertGroupOptions options;
  options.experts =
      random.one_of<std::int64_t>({1, std::max(1, ranks - 1), ranks, ranks + 1, 2 * ranks + 3, random.between(1, 40)});
  options.top_k = random.chance(0.3) ? random.between(9, 16) : random.between(1, 8);
  options.hidden = random.one_of<std::int64_t>({1, 7, 8, 33, 64, 72, 130, 257, 1100});
  options.max_tokens = random.between(1, options.hidden > 300 ? 6 : 24);
  options.dtype = random.one_of({f32, f16, bf16});
  if (random.chance(0.6)) options.partial_dtype = random.one_of({f32, f16, bf16});
  options.reduce_group = static_cast<int>(random.between(0, ranks));
  options.routings = static_cast<int>(random.between(1, 4));
  return options;
}

Batch random_batch(Random& random, int ranks, ExpertGroupOptions const& options) {
  Batch batch{ranks, options};
  batch.salt = random.word();
  auto const last = options.experts - 1;
  bool const full = random.chance(0.2);
  bool const crowded = random.chance(0.25);  // nearly all go to a few experts
  auto const crowd = random.between(0, last);
  auto const unused = random.one_of({0.0, 0.15, 0.6});
  for (int rank = 0; rank < ranks; ++rank) {
    auto const count = full ? options.max_tokens : random.chance(0.15) ? 0 : random.between(0, options.max_tokens);
    auto& ids = batch.ids.emplace_back();
    auto& weights = batch.weights.emplace_back();
    for (std::int64_t token = 0; token < count; ++token) {
      bool const nowhere = random.chance(0.1);
      for (std::int64_t k = 0; k < options.top_k; ++k) {
        bool const used = !nowhere && !random.chance(unused);
        auto const expert = crowded && random.chance(0.9) ? std::min(last, crowd + k % 2) : random.between(0, last);
        ids.push_back(used ? expert : -1);
        auto const weight = random.chance(0.05) ? 0.0F : static_cast<float>(random.between(-2000, 2000)) / 999.0F;
        weights.push_back(used ? weight : std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  return batch;
}

}  // namespace davit::test
