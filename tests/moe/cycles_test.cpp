// SPDX-License-Identifier: Apache-2.0
/// @file
/// Groups made and dropped many times keep nothing of the system.
#include <gtest/gtest.h>
#include <algorithm>

#include "tests/moe/memory.hpp"
#include "tests/moe/player.hpp"
#include "tests/support/files.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

TEST(MoeCycles, TwoHundredGroupsLeaveNothing) {
  constexpr int ranks = 4;
  Random random(71);
  auto options = random_options(random, ranks);
  options.routings = std::max(options.routings, 2);  // play() makes one beside the cycle's own
  auto const batch = random_batch(random, ranks, options);
  Making making;
  making.limit = std::chrono::seconds(60);
  run_ranks(ranks, making, [&](int rank, Communicator& comm) {
    std::size_t descriptors = 0;
    std::size_t mappings = 0;
    for (int cycle = 0; cycle < 201; ++cycle) {
      {
        ExpertGroup group(comm, batch.options);
        Player const player(batch, rank, group);
        auto routing = player.route();
        player.dispatch(routing, {.payloads = {9}});
        player.combine(routing);
        if (cycle % 3 == 0) player.play();
      }
      comm.barrier();  // all have dropped theirs
      if (rank == 0) {
        if (cycle == 0) descriptors = open_descriptors();
        if (cycle == 0) mappings = shared_mappings();
        EXPECT_EQ(open_descriptors(), descriptors) << "cycle " << cycle;
        EXPECT_EQ(shared_mappings(), mappings) << "cycle " << cycle;
      }
      comm.barrier();
    }
    EXPECT_EQ(comm.stats().rows_slack, 0U);
  });
}

TEST(MoeCycles, GroupsThatCouldNotBeMadeLeaveNothing) {
  bool const bounded = shared_memory_is_bounded();
  run_ranks(3, [&](int rank, Communicator& comm) {
    std::size_t descriptors = 0;
    std::size_t mappings = 0;
    for (int cycle = 0; cycle < 30; ++cycle) {
      ExpertGroupOptions options{.experts = 4, .top_k = 2, .hidden = 8, .max_tokens = 4};
      if (rank == 1) options.hidden = cycle % 2 == 0 ? 0 : 9;    // UsageError or MismatchError
      if (cycle % 3 == 0 && bounded) options = far_too_large();  // SystemError
      EXPECT_THROW(ExpertGroup(comm, options), Error);
      comm.barrier();
      if (rank == 0) {
        if (cycle == 0) descriptors = open_descriptors();
        if (cycle == 0) mappings = shared_mappings();
        EXPECT_EQ(open_descriptors(), descriptors) << "cycle " << cycle;
        EXPECT_EQ(shared_mappings(), mappings) << "cycle " << cycle;
      }
      comm.barrier();
    }
  });
}

}  // namespace
