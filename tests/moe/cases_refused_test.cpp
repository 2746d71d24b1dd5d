// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cases in which ranks bring too much, or disagree.
#include <gtest/gtest.h>

#include "tests/moe/cases.hpp"
#include "tests/support/limits.hpp"

namespace {

using namespace davit;
using namespace davit::test;
using Numbers = std::vector<std::int64_t>;

/// A rank that waits for a peer longer than this would raise TimeoutError instead of what is expected.
Making within_five_seconds() {
  Making making;
  making.options.timeout = stretched(std::chrono::seconds(5));
  return making;
}

Batch two_ranks(std::int64_t tokens) {
  return case_batch(2, {.experts = 4, .top_k = 2, .hidden = 64, .max_tokens = 8}, {tokens, tokens}, {0.25F, 0.75F},
                    [](int r, std::int64_t t) {
                      return Numbers{(t + r) % 4, (t + r + 1) % 4};
                    });
}

TEST(MoeCases, A5_MoreTokensThanTheBound) {
  auto const batch = two_ranks(8);
  play_case(batch, within_five_seconds(), [](Player const& player, Communicator& comm) {
    std::vector<std::int32_t> const ids(18, 0);
    std::vector<float> const weights(18, 0.5F);
    auto const too_many = [&] { static_cast<void>(player.group().route(std::span(ids), weights)); };
    if (player.rank() == 1) {
      expect_parts(raised<UsageError>(too_many), {"tokens is 9", "max_tokens 8"});
    } else {
      auto const text = raised<PeerError>([&] { static_cast<void>(player.route()); });
      expect_parts(text, {"rank 1", "tokens is 9", "max_tokens 8"});
    }
    EXPECT_TRUE(comm.usable());
    auto routing = player.route();
    expect_scaled(player, exchange(player, routing), 1.0F);
  });
}

/// Rank 1 asks for other settings than rank 0; both learn it, and may try again.
void expect_creation_mismatch(ExpertGroupOptions const& one, ExpertGroupOptions const& other,
                              std::vector<std::string> const& parts) {
  run_ranks(2, within_five_seconds(), [&](int rank, Communicator& comm) {
    auto const text = raised<MismatchError>([&] { ExpertGroup(comm, rank == 0 ? one : other); });
    expect_parts(text, parts);
    auto const batch = two_ranks(8);
    ExpertGroup group(comm, batch.options);
    Player(batch, rank, group).play();
  });
}

TEST(MoeCases, A6_SettingsThatDiffer) {
  ExpertGroupOptions const base{.experts = 8, .top_k = 2, .hidden = 64, .max_tokens = 8};
  auto other = base;
  other.max_tokens = 16;
  expect_creation_mismatch(base, other, {"max_tokens is 8 on rank 0 and 16 on rank 1"});
  other = base;
  other.experts = 16;
  expect_creation_mismatch(base, other, {"experts is 8 on rank 0 and 16 on rank 1"});
  other = base;
  other.hidden = 128;
  expect_creation_mismatch(base, other, {"hidden is 64 on rank 0 and 128 on rank 1"});
  other = base;
  other.top_k = 4;
  expect_creation_mismatch(base, other, {"top_k is 2 on rank 0 and 4 on rank 1"});
  other = base;
  other.dtype = f32;
  expect_creation_mismatch(base, other, {"dtype is bf16 on rank 0 and f32 on rank 1"});
}

TEST(MoeCases, A6_CountsThatDiffer) {
  run_ranks(2, within_five_seconds(), [](int rank, Communicator& comm) {
    std::vector<float> const send(4, 1.0F);
    std::vector<float> recv(4);
    auto const exchange_with_peer = [&](std::int64_t sent, std::int64_t expected) {
      Numbers const send_counts = rank == 0 ? Numbers{0, sent} : Numbers{0, 0};
      Numbers const recv_counts = rank == 1 ? Numbers{expected, 0} : Numbers{0, 0};
      Numbers const displs{0, 0};
      comm.alltoallv(send.data(), send_counts, displs, f32, recv.data(), recv_counts, displs, f32);
    };
    struct {
      std::int64_t sent, expected;
    } const pairs[] = {{4, 3}, {4, 0}, {0, 4}};
    for (auto const& pair : pairs) {
      auto const text = raised<MismatchError>([&] { exchange_with_peer(pair.sent, pair.expected); });
      expect_parts(text, {"rank 0 sends " + std::to_string(4 * pair.sent) + " bytes",
                          "to rank 1, which expects " + std::to_string(4 * pair.expected) + " bytes"});
      recv.assign(4, -1.0F);
      exchange_with_peer(4, 4);
      EXPECT_EQ(recv, std::vector<float>(4, rank == 1 ? 1.0F : -1.0F));
    }
  });
}

}  // namespace
