// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks on two nodes, so that outboxes have a ring of slots for each. Run with HWLOC_XMLFILE on a machine whose CPUs 0
/// and 1 are of two nodes: the plan is real then, binding is left out.
#include <gtest/gtest.h>

#include <iostream>

#include "runtime/communicator_state.hpp"
#include "tests/support/access.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/ranks.hpp"
#include "transports/topology.hpp"

namespace davit::test {
namespace {

constexpr int kRounds = 6;

bool can_pin() {
  auto const cpus = Topology::usable_cpus();
  if (cpus[0] && cpus[1]) return true;
  std::cout << "SKIPPED: CPUs 0 and 1 may not be used here\n";
  return false;
}

/// `play` on ranks of which the first half is on node 0; an unpinned one is on no node.
void run_pinned(int ranks, Options const& options, int unpinned, std::function<void(int, Communicator&)> const& play) {
  auto const thrown = play_ranks(ranks, [&](int rank, std::shared_ptr<Bootstrap> bootstrap) {
    if (rank != unpinned) {
      CpuMask cpu;
      cpu[rank < (ranks + 1) / 2 ? 0 : 1] = true;
      ASSERT_TRUE(Topology::keep_thread_to(cpu));
    }
    Communicator comm(std::move(bootstrap), options);
    play(rank, comm);
  });
  for (auto const& error : thrown) EXPECT_EQ(text_of(error), "");
}

void exchange(int ranks, HostOrder order, Path path, int unpinned, std::uint32_t rings) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks, order " + std::to_string(static_cast<int>(order)));
  Random random;
  std::vector<Exchange> exchanges;
  for (int round = 0; round < kRounds; ++round) {
    exchanges.emplace_back(random, ranks, random_matrix(random, ranks, {}));
  }
  auto options = Making::patient();
  options.slots = 1;
  options.slot_bytes = 4096;
  options.host_order = order;
  options.path = path;
  run_pinned(ranks, options, unpinned, [&](int rank, Communicator& comm) {
    ASSERT_EQ(detail::Access::state(comm).mesh->geometry().rings, rings);
    for (auto const& one : exchanges) {
      Buffers buffers(one, rank);
      buffers.run(comm);
      buffers.check();
    }
    // A shared exchange between stepped ones: it uses the writer's own ring.
    std::vector<std::int64_t> const counts(static_cast<std::size_t>(ranks), 3000);
    std::vector<std::int64_t> displs;
    for (int peer = 0; peer < ranks; ++peer) displs.push_back(std::int64_t{3000} * peer);
    std::vector<std::int32_t> mine(3000, rank + 1);
    std::vector<std::int32_t> all(3000 * static_cast<std::size_t>(ranks));
    comm.allgatherv(mine.data(), 3000, i32, all.data(), counts, displs, i32);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::int32_t>(i / 3000) + 1);
    Buffers buffers(exchanges.front(), rank);
    buffers.run(comm);
    buffers.check();
  });
}

class Rings : public testing::TestWithParam<HostOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, Rings, testing::Values(HostOrder::eager, HostOrder::queues, HostOrder::submission));

TEST_P(Rings, ExchangesComeOutRight) {
  if (!can_pin()) GTEST_SKIP();
  for (int const ranks : {2, 3, 4, 7}) exchange(ranks, GetParam(), Path::slots, -1, 2);
}

TEST_P(Rings, ARankOnNoNodeHasARingOfItsOwn) {
  if (!can_pin()) GTEST_SKIP();
  for (int const unpinned : {0, 2, 4}) exchange(5, GetParam(), Path::slots, unpinned, 3);
}

TEST(RingsOnly, OtherPoliciesKeepOne) {
  if (!can_pin()) GTEST_SKIP();
  for (auto const placement : {Placement::near_writer, Placement::interleave}) {
    auto options = Making::patient();
    options.placement = placement;
    run_pinned(4, options, -1, [&](int, Communicator& comm) {
      EXPECT_EQ(detail::Access::state(comm).mesh->geometry().rings, 1U);
      comm.prepare();
    });
  }
}

TEST(RingsOnly, RanksMustAgreeOnThePolicy) {
  auto const thrown = play_ranks(2, [&](int rank, std::shared_ptr<Bootstrap> bootstrap) {
    auto options = Making::patient();
    options.placement = rank == 0 ? Placement::near_reader : Placement::interleave;
    Communicator const comm(std::move(bootstrap), options);
  });
  for (auto const& error : thrown) {
    expect_parts(text_of(error), {"MismatchError", "option placement", "near-reader", "interleave"});
  }
}

}  // namespace
}  // namespace davit::test
