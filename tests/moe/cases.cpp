// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/cases.hpp"

#include <gtest/gtest.h>

#include "transports/host/kernels.hpp"

namespace davit::test {

std::vector<std::byte> exchange(Player const& player, Routing& routing, DispatchWish const& wish) {
  auto const& batch = player.batch();
  auto const received = player.dispatch(routing, wish);
  auto const count = static_cast<std::size_t>(batch.tokens(player.rank()));
  Guarded out(count * batch.row_bytes());
  player.group().combine(routing, received.data(), count == 0 ? nullptr : out.data());
  EXPECT_TRUE(out.intact()) << batch.text();
  Sum sum;
  sum.layout = wish.layout;
  sum.out = batch.options.dtype;
  auto result = out.read();
  expect_bytes(result, reference_combine(batch, player.rank(), sum), "combine: " + batch.text());
  return result;
}

void expect_scaled(Player const& player, std::vector<std::byte> const& out, float factor) {
  auto const& batch = player.batch();
  auto const dtype = batch.options.dtype;
  auto const x = player.rows(0, batch.row_bytes());
  ASSERT_EQ(out.size(), x.size());
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < x.size(); at += size_of(dtype)) {
    auto const is = host::load_element(dtype, out.data() + at);
    if (!(is == factor * host::load_element(dtype, x.data() + at))) ++wrong;
  }
  EXPECT_EQ(wrong, 0U) << "that many elements of " << batch.text() << " are not " << factor << " times x";
}

void play_case(Batch const& batch, Making const& making,
               std::function<void(Player const&, Communicator&)> const& play) {
  run_ranks(batch.ranks, making, [&](int rank, Communicator& comm) {
    ExpertGroup group(comm, batch.options);
    play(Player(batch, rank, group), comm);
    play_ordinary(batch.ranks, rank, group);
  });
}

}  // namespace davit::test
