// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/player.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace davit::test {
namespace {

char const* name_of(Layout layout) {
  constexpr char const* names[] = {"by_source", "by_expert", "expert_slots"};
  return names[static_cast<std::size_t>(layout)];
}

template <class Id>
Routing route_with(ExpertGroup& group, std::vector<std::int64_t> const& ids, std::vector<float> weights) {
  std::vector<Id> own;
  for (auto const id : ids) own.push_back(static_cast<Id>(id));
  auto routing = group.route(std::span<Id const>(own), weights);
  std::fill(own.begin(), own.end(), Id{0x7ffffff});
  std::fill(weights.begin(), weights.end(), std::numeric_limits<float>::quiet_NaN());
  return routing;
}

template <class T>
void expect_equal(std::span<T const> actual, std::vector<T> const& expected, std::string const& what) {
  EXPECT_EQ(std::vector<T>(actual.begin(), actual.end()), expected) << what;
}

}  // namespace

std::string text_of(DispatchWish const& wish) {
  std::string text = std::string("dispatch ") + name_of(wish.layout) + ", alignment " + std::to_string(wish.alignment) +
                     ", row_bytes " + std::to_string(wish.row_bytes) + ", payloads";
  for (auto const bytes : wish.payloads) text += " " + std::to_string(bytes);
  return text + (wish.global_ids ? ", global ids" : "") + (wish.into ? ", into own memory" : "");
}

std::string text_of(CombineWish const& wish) {
  auto const& sum = wish.sum;
  return std::string("combine ") + name_of(sum.layout) + ", alignment " + std::to_string(wish.alignment) +
         (sum.weighting == Weighting::by_caller ? ", by_caller" : ", at_combine") +
         (sum.reduce == Reduce::by_k ? ", by_k" : ", grouped") + ", out " + davit::name_of(sum.out) +
         (sum.bias ? ", bias" : "") + (wish.told ? "" : ", not told");
}

void expect_bytes(std::span<std::byte const> actual, std::span<std::byte const> expected, std::string const& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  auto const [wrong, _] = std::mismatch(actual.begin(), actual.end(), expected.begin());
  EXPECT_TRUE(wrong == actual.end()) << what << ": byte " << wrong - actual.begin() << " of " << actual.size()
                                     << " is wrong";
}

Routing Player::route(bool wide_ids) const {
  auto const& ids = batch_.ids[static_cast<std::size_t>(rank_)];
  auto const& weights = batch_.weights[static_cast<std::size_t>(rank_)];
  auto routing =
      wide_ids ? route_with<std::int64_t>(group_, ids, weights) : route_with<std::int32_t>(group_, ids, weights);
  EXPECT_EQ(routing.tokens(), batch_.tokens(rank_)) << here();
  return routing;
}

std::vector<std::byte> Player::rows(std::size_t array, std::size_t row_bytes) const {
  auto const count = static_cast<std::size_t>(batch_.tokens(rank_));
  std::vector<std::byte> all(count * row_bytes);
  for (std::size_t token = 0; token < count; ++token) {
    batch_.fill_row(array, rank_, static_cast<std::int64_t>(token),
                    std::span(all).subspan(token * row_bytes, row_bytes));
  }
  return all;
}

Received Player::dispatch(Routing& routing, DispatchWish const& wish) const {
  auto const what = here() + ": " + text_of(wish);
  auto const row_bytes = wish.row_bytes == 0 ? batch_.row_bytes() : wish.row_bytes;
  Memory const x(rows(0, row_bytes));
  std::vector<Memory> payloads;
  std::vector<RowArray> arrays;
  for (auto const bytes : wish.payloads) payloads.emplace_back(rows(payloads.size() + 1, bytes));
  for (std::size_t i = 0; i < payloads.size(); ++i) arrays.push_back({payloads[i].data(), wish.payloads[i]});
  DispatchOptions options{wish.layout, wish.alignment, wish.row_bytes, arrays, wish.global_ids};
  if (is_on_device()) options.space = Space::device;

  auto const count = routing.rows(wish.layout, wish.alignment);
  check_counts(routing.counts(wish.layout, wish.alignment), wish.layout, wish.alignment, what + ", of the routing");
  std::vector<Guarded> memory;
  std::vector<void*> pointers;
  if (wish.into) {
    for (std::size_t i = 0; i <= payloads.size(); ++i) {
      memory.emplace_back(static_cast<std::size_t>(count) * (i == 0 ? row_bytes : wish.payloads[i - 1]));
    }
    for (std::size_t i = 1; i < memory.size(); ++i) pointers.push_back(memory[i].data());
  }
  auto received = wish.into ? group_.dispatch(routing, x.data(), ReceiveInto{memory[0].data(), pointers}, options)
                            : group_.dispatch(routing, x.data(), options);
  auto const spoil = [](Memory const& rows) { rows.write(0, std::vector<std::byte>(rows.size(), kUntouched)); };
  spoil(x);  // the caller's again
  for (auto const& payload : payloads) spoil(payload);

  EXPECT_EQ(received.rows(), count) << what;
  EXPECT_EQ(received.row_bytes(), row_bytes) << what;
  if (wish.into) {
    EXPECT_EQ(received.data(), memory[0].data()) << what;
    for (auto const& guarded : memory) EXPECT_TRUE(guarded.intact()) << what << ": written outside of the rows";
  }
  check(received, wish);
  return received;
}

void Player::check(Received const& received, DispatchWish const& wish) const {
  auto const what = here() + ": " + text_of(wish);
  EXPECT_EQ(received.layout(), wish.layout) << what;
  check_counts(received.counts(), wish.layout, wish.alignment, what);
  check_choices(received, wish, what);
  check_rows(received.data(), 0, received.row_bytes(), wish, what + ": x");
  for (std::size_t i = 0; i < wish.payloads.size(); ++i) {
    check_rows(received.payload(i), i + 1, wish.payloads[i], wish, what + ": payload " + std::to_string(i));
  }
}

void Player::check_counts(ReceivedCounts const& counts, Layout layout, std::int64_t alignment,
                          std::string const& what) const {
  auto const expected = reference_dispatch(batch_, rank_, layout, alignment);
  expect_equal(counts.counts, expected.counts, what + ": counts");
  expect_equal(counts.expert_counts, expected.expert_counts, what + ": expert_counts");
  expect_equal(counts.padded_counts, expected.padded_counts, what + ": padded_counts");
  expect_equal(counts.source_counts, expected.source_counts, what + ": source_counts");
  if (layout != Layout::by_source) expect_equal(counts.expert_offsets, expected.expert_offsets, what + ": offsets");
}

void Player::check_rows(std::byte const* data, std::size_t array, std::size_t row_bytes, DispatchWish const& wish,
                        std::string const& what) const {
  auto const expected = reference_dispatch(batch_, rank_, wish.layout, wish.alignment).rows;
  auto const actual = contents(data, expected.size() * row_bytes);
  std::vector<std::byte> row(row_bytes);
  std::size_t wrong = 0;
  std::size_t first_wrong = 0;
  for (std::size_t index = 0; index < expected.size(); ++index) {
    if (expected[index].source >= 0) {
      batch_.fill_row(array, expected[index].source, expected[index].token, row);
    } else if (wish.layout == Layout::by_expert) {
      std::fill(row.begin(), row.end(), std::byte{0});
    } else if (wish.into) {
      std::fill(row.begin(), row.end(), kUntouched);
    } else {
      continue;
    }
    if (std::memcmp(row.data(), actual.data() + index * row_bytes, row_bytes) == 0) continue;
    if (wrong++ == 0) first_wrong = index;
  }
  EXPECT_EQ(wrong, 0U) << what << ": that many rows of " << expected.size() << " are wrong, the first is "
                       << first_wrong;
}

void Player::check_choices(Received const& received, DispatchWish const& wish, std::string const& what) const {
  auto const expected = reference_dispatch(batch_, rank_, wish.layout, wish.alignment).rows;
  auto const top_k = static_cast<std::size_t>(batch_.options.top_k);
  std::vector<std::int32_t> ids(expected.size() * top_k, -1);
  std::vector<float> weights(ids.size(), 0.0F);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    if (expected[index].source < 0) continue;
    for (auto const& choice : choices_here(batch_, expected[index].source, expected[index].token, rank_)) {
      auto const at = index * top_k + static_cast<std::size_t>(choice.k);
      ids[at] = static_cast<std::int32_t>(choice.expert - (wish.global_ids ? 0 : first_held(batch_, rank_)));
      weights[at] = choice.weight;
    }
  }
  expect_equal(received.ids(), ids, what + ": ids");
  expect_equal(received.weights(), weights, what + ": weights");
}

std::vector<std::byte> Player::expert_rows(Layout layout, std::int64_t alignment) const {
  auto const places = reference_dispatch(batch_, rank_, layout, alignment).rows;
  auto const row_bytes = batch_.row_bytes();
  std::vector<std::byte> all(places.size() * row_bytes, kUntouched);
  for (std::size_t index = 0; index < places.size(); ++index) {
    auto const& place = places[index];
    auto const row = std::span(all).subspan(index * row_bytes, row_bytes);
    if (place.source < 0) continue;
    if (layout == Layout::by_source) {
      fill_caller_row(batch_, rank_, place.source, place.token, row);
    } else {
      batch_.fill_expert_row(place.source, place.token, place.expert, row);
    }
  }
  return all;
}

std::vector<std::byte> Player::combine(Routing& routing, CombineWish const& wish) const {
  auto const what = here() + ": " + text_of(wish);
  auto const& sum = wish.sum;
  Memory const rows(expert_rows(sum.layout, wish.alignment));
  auto const row = static_cast<std::size_t>(batch_.options.hidden) * size_of(sum.out);
  auto const count = static_cast<std::size_t>(batch_.tokens(rank_));
  std::vector<std::byte> bias(sum.bias ? count * row : 0);
  for (std::size_t at = 0; at < bias.size(); at += row) {
    batch_.fill_bias(rank_, static_cast<std::int64_t>(at / row), sum.out, std::span(bias).subspan(at, row));
  }
  CombineOptions options;
  if (wish.told) {
    options.layout = sum.layout;
    options.alignment = wish.alignment;
    options.weighting = sum.weighting;
  }
  options.reduce = sum.reduce;
  options.out_dtype = sum.out;
  Memory const bias_there(bias);
  if (!bias.empty()) options.bias = bias_there.data();
  Guarded out(count * row);
  group_.combine(routing, rows.data(), out.data(), options);
  EXPECT_TRUE(out.intact()) << what << ": written outside of out";
  auto result = out.read();
  expect_bytes(result, reference_combine(batch_, rank_, sum), what);
  return result;
}

std::vector<std::byte> Player::combine(Routing& routing) const {
  CombineWish wish;
  wish.sum.out = batch_.options.dtype;
  return combine(routing, wish);
}

void Player::play() const {
  auto routing = route();
  dispatch(routing);
  combine(routing);
}

void play_ordinary(int ranks, int rank, ExpertGroup& group) {
  Random random(77, 1);
  auto options = group.options();
  options.max_tokens = std::min<std::int64_t>(options.max_tokens, 5);  // few tokens
  auto batch = random_batch(random, ranks, options);
  batch.options = group.options();
  Player(batch, rank, group).play();
}

}  // namespace davit::test
