// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/reference.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "tests/support/nodes.hpp"
#include "transports/host/kernels.hpp"

namespace davit::test {
namespace {

/// A sum that its first term starts.
class Adder {
 public:
  void add(float term) { sum_ = sum_ ? *sum_ + term : term; }
  [[nodiscard]] std::optional<float> const& sum() const { return sum_; }
  [[nodiscard]] float or_zero() const { return sum_.value_or(0.0F); }

 private:
  std::optional<float> sum_;
};

float rounded(Dtype dtype, float value) {
  std::byte element[4];
  host::store_element(dtype, value, element);
  return host::load_element(dtype, element);
}

std::vector<float> numbers(Dtype dtype, std::vector<std::byte> const& row) {
  std::vector<float> values;
  for (std::size_t at = 0; at < row.size(); at += size_of(dtype)) {
    values.push_back(host::load_element(dtype, row.data() + at));
  }
  return values;
}

/// A term of a token: what one row adds to it.
struct Term {
  int rank;
  float weight;
  std::vector<float> row;
};

/// k rising; of by_source, where the caller has done step (1), rank rising.
std::vector<Term> terms_of(Batch const& batch, int owner, std::int64_t token, Sum const& sum) {
  std::vector<Term> terms;
  std::vector<std::byte> row(batch.row_bytes());
  if (sum.layout == Layout::by_source) {
    for (int rank = 0; rank < batch.ranks; ++rank) {
      if (choices_here(batch, owner, token, rank).empty()) continue;
      fill_caller_row(batch, rank, owner, token, row);
      terms.push_back({rank, 1.0F, numbers(batch.options.dtype, row)});
    }
    return terms;
  }
  for (auto const& choice : choices(batch, owner, token)) {
    batch.fill_expert_row(owner, token, choice.expert, row);
    auto const weight = sum.weighting == Weighting::at_combine ? choice.weight : 1.0F;
    terms.push_back({holder(batch, choice.expert), weight, numbers(batch.options.dtype, row)});
  }
  return terms;
}

float by_k(std::vector<Term> const& terms, std::size_t column) {
  Adder total;
  for (auto const& term : terms) total.add(term.weight * term.row[column]);
  return total.or_zero();
}

float grouped(Batch const& batch, std::vector<Term> const& terms, std::size_t column) {
  auto const partial = batch.options.partial_dtype.value_or(batch.options.dtype);
  int const size = batch.options.reduce_group == 0 ? default_reduce_group(batch.ranks) : batch.options.reduce_group;
  Adder total;
  for (int first = 0; first < batch.ranks; first += size) {
    Adder of_group;
    for (int rank = first; rank < std::min(first + size, batch.ranks); ++rank) {
      Adder of_rank;
      for (auto const& term : terms) {
        if (term.rank == rank) of_rank.add(term.weight * term.row[column]);
      }
      if (of_rank.sum()) of_group.add(rounded(partial, *of_rank.sum()));
    }
    if (of_group.sum()) total.add(rounded(partial, *of_group.sum()));
  }
  return total.or_zero();
}

}  // namespace

std::int64_t count_held(Batch const& batch, int rank) {
  return batch.options.experts / batch.ranks + (rank < batch.options.experts % batch.ranks ? 1 : 0);
}

std::int64_t first_held(Batch const& batch, int rank) {
  std::int64_t first = 0;
  for (int before = 0; before < rank; ++before) first += count_held(batch, before);
  return first;
}

int holder(Batch const& batch, std::int64_t expert) {
  int rank = 0;
  while (expert >= first_held(batch, rank) + count_held(batch, rank)) ++rank;
  return rank;
}

std::vector<Choice> choices(Batch const& batch, int source, std::int64_t token) {
  std::vector<Choice> all;
  for (std::int64_t k = 0; k < batch.options.top_k; ++k) {
    auto const at = static_cast<std::size_t>(token * batch.options.top_k + k);
    auto const expert = batch.ids[static_cast<std::size_t>(source)][at];
    if (expert == -1) continue;
    auto const weight = batch.weights[static_cast<std::size_t>(source)][at];
    auto const met = std::find_if(all.begin(), all.end(), [&](Choice const& c) { return c.expert == expert; });
    if (met == all.end()) {
      all.push_back({expert, k, weight});
    } else {
      met->weight += weight;
    }
  }
  return all;
}

std::vector<Choice> choices_here(Batch const& batch, int source, std::int64_t token, int rank) {
  auto here = choices(batch, source, token);
  std::erase_if(here, [&](Choice const& choice) { return holder(batch, choice.expert) != rank; });
  return here;
}

ReferenceDispatch reference_dispatch(Batch const& batch, int rank, Layout layout, std::int64_t alignment) {
  ReferenceDispatch result;
  auto const first = first_held(batch, rank);
  std::vector<ReferenceRow> by_source;
  for (int source = 0; source < batch.ranks; ++source) {
    auto const before = by_source.size();
    for (std::int64_t token = 0; token < batch.tokens(source); ++token) {
      if (!choices_here(batch, source, token, rank).empty()) by_source.push_back({source, token, -1});
    }
    result.source_counts.push_back(static_cast<std::int64_t>(by_source.size() - before));
  }
  for (auto expert = first; expert < first + count_held(batch, rank); ++expert) {
    result.expert_offsets.push_back(static_cast<std::int64_t>(result.rows.size()));
    std::int64_t of_expert = 0;
    for (int source = 0; source < batch.ranks; ++source) {
      std::int64_t of_source = 0;
      for (std::int64_t token = 0; token < batch.tokens(source); ++token) {
        auto const here = choices_here(batch, source, token, rank);
        bool const chosen = std::any_of(here.begin(), here.end(), [&](Choice const& c) { return c.expert == expert; });
        if (!chosen) continue;
        result.rows.push_back({source, token, expert});
        ++of_source;
      }
      if (layout == Layout::expert_slots) {
        result.rows.resize(result.rows.size() + static_cast<std::size_t>(batch.options.max_tokens - of_source));
      }
      result.counts.push_back(of_source);
      of_expert += of_source;
    }
    result.expert_counts.push_back(of_expert);
    std::int64_t padded = of_expert;
    if (layout == Layout::by_expert) {
      while (padded % alignment != 0) ++padded;
      result.rows.resize(result.rows.size() + static_cast<std::size_t>(padded - of_expert));
    }
    result.padded_counts.push_back(padded);
  }
  if (layout == Layout::by_source) result.rows = by_source;
  return result;
}

void fill_caller_row(Batch const& batch, int rank, int source, std::int64_t token, std::span<std::byte> row) {
  auto const dtype = batch.options.dtype;
  std::vector<Adder> sums(static_cast<std::size_t>(batch.options.hidden));
  std::vector<std::byte> of_expert(row.size());
  for (auto const& choice : choices_here(batch, source, token, rank)) {
    batch.fill_expert_row(source, token, choice.expert, of_expert);
    auto const values = numbers(dtype, of_expert);
    for (std::size_t column = 0; column < sums.size(); ++column) sums[column].add(choice.weight * values[column]);
  }
  for (std::size_t column = 0; column < sums.size(); ++column) {
    host::store_element(dtype, sums[column].or_zero(), row.data() + column * size_of(dtype));
  }
}

std::vector<std::byte> reference_combine(Batch const& batch, int rank, Sum const& sum) {
  auto const columns = static_cast<std::size_t>(batch.options.hidden);
  auto const size = size_of(sum.out);
  std::vector<std::byte> out(static_cast<std::size_t>(batch.tokens(rank)) * columns * size);
  std::vector<std::byte> bias(columns * size);
  for (std::int64_t token = 0; token < batch.tokens(rank); ++token) {
    auto const terms = terms_of(batch, rank, token, sum);
    if (sum.bias) batch.fill_bias(rank, token, sum.out, bias);
    for (std::size_t column = 0; column < columns; ++column) {
      auto value = sum.reduce == Reduce::by_k ? by_k(terms, column) : grouped(batch, terms, column);
      if (sum.bias) value += host::load_element(sum.out, bias.data() + column * size);
      host::store_element(sum.out, value, out.data() + (static_cast<std::size_t>(token) * columns + column) * size);
    }
  }
  return out;
}

Crossings dispatch_crossings(Batch const& batch, int rank) {
  Crossings crossings;
  for (std::int64_t token = 0; token < batch.tokens(rank); ++token) {
    auto const all = choices(batch, rank, token);
    if (choices_here(batch, rank, token, rank).size() < all.size()) ++crossings.up;
  }
  for (int source = 0; source < batch.ranks; ++source) {
    for (std::int64_t token = 0; source != rank && token < batch.tokens(source); ++token) {
      if (!choices_here(batch, source, token, rank).empty()) ++crossings.down;
    }
  }
  return crossings;
}

Crossings combine_crossings(Batch const& batch, int rank, Reduce reduce) {
  auto const rows = [&](std::vector<Choice> const& here) {
    return reduce == Reduce::by_k ? here.size() : std::min<std::size_t>(here.size(), 1);
  };
  Crossings crossings;
  for (int other = 0; other < batch.ranks; ++other) {
    if (other == rank) continue;
    for (std::int64_t token = 0; token < batch.tokens(other); ++token) {
      crossings.up += rows(choices_here(batch, other, token, rank));
    }
    for (std::int64_t token = 0; token < batch.tokens(rank); ++token) {
      crossings.down += rows(choices_here(batch, rank, token, other));
    }
  }
  return crossings;
}

}  // namespace davit::test
