// SPDX-License-Identifier: Apache-2.0
/// @file
/// Making an ExpertGroup: settings out of bounds, settings that differ, memory that is not there, groups side by side.
#include <gtest/gtest.h>

#include <functional>

#include "tests/moe/memory.hpp"
#include "tests/moe/player.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

using Change = std::function<void(ExpertGroupOptions&)>;
constexpr int kRanks = 3;

ExpertGroupOptions base() { return {.experts = 7, .top_k = 2, .hidden = 16, .max_tokens = 4, .dtype = f32}; }

ExpertGroupOptions changed(Change const& change) {
  auto options = base();
  change(options);
  return options;
}

void expect_out_of_bounds(Change const& change, std::vector<std::string> const& parts) {
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    if (rank == 1) {
      expect_parts(raised<UsageError>([&] { ExpertGroup(comm, changed(change)); }), parts);
    } else {
      auto const text = raised<PeerError>([&] { ExpertGroup(comm, base()); });
      expect_parts(text, parts);
      expect_parts(text, {"rank 1 refused"});
    }
    ExpertGroup group(comm, base());
    play_ordinary(kRanks, rank, group);
  });
}

TEST(MoeCreation, OptionsOutOfBoundsAreRefused) {
  std::string const most = "2147483647";
  expect_out_of_bounds([](auto& o) { o.experts = 0; }, {"experts is 0", "1 to 1048576"});
  expect_out_of_bounds([](auto& o) { o.experts = -3; }, {"experts is -3", "1 to 1048576"});
  expect_out_of_bounds([](auto& o) { o.experts = std::int64_t{1} << 21; }, {"experts is 2097152", "1 to 1048576"});
  expect_out_of_bounds([](auto& o) { o.top_k = 0; }, {"top_k is 0", "1 to 1024"});
  expect_out_of_bounds([](auto& o) { o.top_k = 1025; }, {"top_k is 1025", "1 to 1024"});
  expect_out_of_bounds([](auto& o) { o.hidden = 0; }, {"hidden is 0", "1 to " + most});
  expect_out_of_bounds([](auto& o) { o.max_tokens = 0; }, {"max_tokens is 0", "1 to "});
  expect_out_of_bounds([](auto& o) { o.max_tokens = std::int64_t{1} << 30; }, {"max_tokens is 1073741824", "1 to "});
  expect_out_of_bounds([](auto& o) { o.routings = 0; }, {"routings is 0", "1 to 1024"});
  expect_out_of_bounds([](auto& o) { o.routings = 1025; }, {"routings is 1025", "1 to 1024"});
  expect_out_of_bounds([](auto& o) { o.reduce_group = -1; }, {"reduce_group is -1", "0 to 3"});
  expect_out_of_bounds([](auto& o) { o.reduce_group = 4; }, {"reduce_group is 4", "0 to 3"});
  expect_out_of_bounds([](auto& o) { o.dtype = i32; }, {"dtype is i32", "f32, f16 or bf16"});
  expect_out_of_bounds([](auto& o) { o.partial_dtype = f64; }, {"partial_dtype is f64", "f32, f16 or bf16"});
}

/// Rank 2 asks for something else than the others: every rank raises, naming both values.
void expect_mismatch(Change const& change, std::string const& field, std::string const& values) {
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    auto const text = raised<MismatchError>([&] { ExpertGroup(comm, rank == 2 ? changed(change) : base()); });
    expect_parts(text, {field + " is " + values + " on rank 2"});
    ExpertGroup group(comm, base());
    play_ordinary(kRanks, rank, group);
  });
}

TEST(MoeCreation, SettingsThatDifferAreNamed) {
  expect_mismatch([](auto& o) { o.experts = 9; }, "experts", "7 on rank 0 and 9");
  expect_mismatch([](auto& o) { o.top_k = 3; }, "top_k", "2 on rank 0 and 3");
  expect_mismatch([](auto& o) { o.hidden = 17; }, "hidden", "16 on rank 0 and 17");
  expect_mismatch([](auto& o) { o.max_tokens = 5; }, "max_tokens", "4 on rank 0 and 5");
  expect_mismatch([](auto& o) { o.dtype = f16; }, "dtype", "f32 on rank 0 and f16");
  expect_mismatch([](auto& o) { o.partial_dtype = bf16; }, "partial_dtype", "f32 on rank 0 and bf16");
  expect_mismatch([](auto& o) { o.reduce_group = 2; }, "reduce_group",
                  std::to_string(default_reduce_group(kRanks)) + " on rank 0 and 2");
  expect_mismatch([](auto& o) { o.routings = 9; }, "routings", "8 on rank 0 and 9");
}

TEST(MoeCreation, WhatIsSaidAndWhatFollowsAreEqual) {
  run_ranks(kRanks, [](int rank, Communicator& comm) {
    auto options = base();
    if (rank == 1) options.partial_dtype = f32;  // the default, said
    if (rank == 2) options.reduce_group = default_reduce_group(kRanks);
    if (rank == 0)
      options.allocator = {[](std::size_t bytes) { return std::malloc(bytes); },
                           [](void* data, std::size_t) { std::free(data); }};
    ExpertGroup group(comm, options);
    EXPECT_EQ(group.options().reduce_group, default_reduce_group(kRanks));
    play_ordinary(kRanks, rank, group);
  });
}

TEST(MoeCreation, MemoryThatIsNotThereIsNamedAndMayBeTriedAgain) {
  if (!shared_memory_is_bounded()) GTEST_SKIP() << environment().shm_dir << " has no bound";
  run_ranks(2, [](int rank, Communicator& comm) {
    auto const text = raised<SystemError>([&] { ExpertGroup(comm, far_too_large()); });
    expect_parts(text, {"bytes"});
    EXPECT_TRUE(comm.usable());
    ExpertGroup group(comm, base());
    play_ordinary(2, rank, group);
  });
}

TEST(MoeCreation, NullAndMovedFromAreRefusedHere) {
  run_ranks(2, [](int rank, Communicator& comm) {
    Communicator none;
    expect_parts(raised<UsageError>([&] { ExpertGroup(none, base()); }), {"communicator is null"});
    ExpertGroup first(comm, base());
    ExpertGroup second = std::move(first);
    auto const route = [&] { static_cast<void>(first.route(std::span<std::int32_t const>(), {})); };
    expect_parts(raised<UsageError>(route), {"expert group is moved from"});
    play_ordinary(2, rank, second);
    first = std::move(second);
    play_ordinary(2, rank, first);
  });
}

TEST(MoeCreation, GroupsOfOneCommunicatorLiveSideBySide) {
  Random random(7);
  std::vector<Batch> batches;
  for (int group = 0; group < 3; ++group) {
    auto options = random_options(random, 4);
    options.routings = 2;
    batches.push_back(random_batch(random, 4, options));
  }
  run_ranks(4, [&](int rank, Communicator& comm) {
    std::vector<ExpertGroup> groups;
    std::vector<Routing> routings;
    for (auto const& batch : batches) groups.emplace_back(comm, batch.options);
    for (std::size_t i = 0; i < 3; ++i) routings.push_back(Player(batches[i], rank, groups[i]).route());
    for (std::size_t const i : {2U, 0U, 1U, 0U, 2U}) {
      Player const player(batches[i], rank, groups[i]);
      player.dispatch(routings[i]);
      comm.barrier();
      player.combine(routings[i]);
    }
    groups.erase(groups.begin());  // its routing lives on
    EXPECT_EQ(routings[0].tokens(), batches[0].tokens(rank));
    Player(batches[1], rank, groups[0]).play();
  });
}

}  // namespace
