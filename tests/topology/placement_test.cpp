// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan: GPUs to ranks, nodes for slots, order of steps, warnings; on machines from files.
#include "runtime/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/ranks.hpp"
#include "transports/topology.hpp"

namespace davit::test {
namespace {

using detail::PlacementPlan;
using detail::Relation;
using detail::Seat;
using detail::seat_of;

Machine machine_of(std::string const& name) {
  return Topology(std::string(DAVIT_TEST_MACHINES) + "/" + name + ".xml").machine();
}

std::vector<PciAddress> gpus_of(Machine const& machine) {
  std::vector<PciAddress> all;
  for (auto const& gpu : machine.gpus) all.push_back(gpu.pci);
  return all;
}

/// A rank bound to one node.
Seat bound(Machine const& machine, int node, int chosen = -1) {
  return seat_of(machine, machine.node(node)->cpus, gpus_of(machine), chosen);
}

Seat unbound(Machine const& machine) {
  CpuMask cpus;
  for (auto const& node : machine.nodes) cpus |= node.cpus;
  return seat_of(machine, cpus, gpus_of(machine), -1);
}

std::string gpus_in(std::vector<Seat> const& seats, PlacementPlan const& plan) {
  std::string text;
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    auto const gpu = plan.ranks[rank].gpu;
    text += gpu < 0 ? "- " : seats[rank].gpu[static_cast<std::size_t>(gpu)].pci.text() + " ";
  }
  return text;
}

TEST(Placement, BoundRanksTakeGpusBesideThemAndSpreadOverRoots) {
  auto const machine = machine_of("two_sockets_eight_gpus");
  std::vector<Seat> const seats{bound(machine, 1), bound(machine, 0), bound(machine, 1), bound(machine, 0)};
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_EQ(gpus_in(seats, plan), "0000:93:00.0 0000:13:00.0 0000:b3:00.0 0000:33:00.0 ");
  EXPECT_EQ(plan.nodes, (std::vector<int>{0, 1}));
  EXPECT_TRUE(plan.warnings.empty()) << plan.warnings.front();
}

TEST(Placement, UnboundRanksDoNotTakeWhatBoundOnesNeed) {
  auto const machine = machine_of("gpu_memory_nodes");
  std::vector<Seat> const seats{unbound(machine), bound(machine, 0)};
  EXPECT_EQ(gpus_in(seats, place(seats, Placement::near_reader)), "0035:01:00.0 0004:01:00.0 ");
}

TEST(Placement, ProgramsChoiceStands) {
  auto const machine = machine_of("two_sockets_eight_gpus");
  std::vector<Seat> const seats{bound(machine, 0, 7), bound(machine, 1, 0), bound(machine, 0)};
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_EQ(gpus_in(seats, plan), "0000:b4:00.0 0000:13:00.0 0000:33:00.0 ");
  EXPECT_EQ(plan.ranks[0].node, 1) << "beside the GPU, not beside the binding";
  EXPECT_TRUE(plan.ranks[0].is_far);
  ASSERT_EQ(plan.warnings.size(), 1U);
  expect_parts(plan.warnings[0], {"ranks 0, 1", "far", "--bind-to numa", "mpirun"});
}

TEST(Placement, MoreRanksThanGpusShareEvenly) {
  auto const machine = machine_of("gpu_memory_nodes");
  std::vector<Seat> const seats(5, unbound(machine));
  auto const plan = place(seats, Placement::near_reader);
  std::vector<int> users(2);
  for (auto const& rank : plan.ranks) ++users[static_cast<std::size_t>(rank.gpu)];
  EXPECT_EQ(users, (std::vector<int>{3, 2}));
  ASSERT_EQ(plan.warnings.size(), 2U) << "one a GPU";
  expect_parts(plan.warnings[0], {"ranks 0, 2, 4", "share GPU 0004:01:00.0", "CUDA_VISIBLE_DEVICES"});
}

TEST(Placement, ForbiddenNodeIsNotUsedAndSaid) {
  auto machine = machine_of("two_sockets_eight_gpus");
  machine.forbidden[1] = true;
  std::vector<Seat> const seats{bound(machine, 0, 0), bound(machine, 1, 7)};
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_EQ(plan.nodes, (std::vector<int>{0}));
  EXPECT_EQ(plan.ranks[1].node, -1);
  ASSERT_EQ(plan.warnings.size(), 2U);
  expect_parts(plan.warnings[0], {"rank 1", "cpuset.mems"});
  expect_parts(plan.warnings[1], {"GPUs sit beside several nodes", "slots lie on one"});
}

TEST(Placement, CpusOutsideTheMachineAndGpusThatItDoesNotShowAreOrdinary) {
  auto const machine = machine_of("two_sockets_eight_gpus");
  std::vector<PciAddress> const strange{*PciAddress::parse("0007:01:00.0")};
  std::vector<Seat> const seats{seat_of(machine, {}, strange, -1), seat_of(machine, {}, {}, -1)};
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_EQ(gpus_in(seats, plan), "0007:01:00.0 - ");
  EXPECT_EQ(plan.ranks[0].node, -1);
  EXPECT_TRUE(plan.nodes.empty());
  EXPECT_EQ(relation(seats, plan, 0, 1), Relation::unknown);
}

TEST(Placement, MemoryPolicyThatKeepsOffTheNodeIsSaid) {
  auto const machine = machine_of("no_pci");
  std::vector<Seat> seats{bound(machine, 0), bound(machine, 1)};
  seats[0].policy[0] = true;
  EXPECT_TRUE(place(seats, Placement::near_reader).warnings.empty());
  seats[1].policy[0] = true;
  auto const plan = place(seats, Placement::near_reader);
  ASSERT_EQ(plan.warnings.size(), 1U);
  expect_parts(plan.warnings[0], {"rank 1", "memory policy", "numactl --membind"});
}

TEST(Placement, RingsAreANodeEach) {
  auto const machine = machine_of("gpu_memory_nodes");
  std::vector<Seat> seats{bound(machine, 8), bound(machine, 0), bound(machine, 8)};
  auto plan = place(seats, Placement::near_reader);
  EXPECT_EQ(plan.rings(), 2U);
  EXPECT_EQ(plan.sites(), (std::vector<std::uint32_t>{1, 0, 1}));
  EXPECT_EQ(plan.node_of_site(1), 8);
  EXPECT_EQ(place(seats, Placement::near_writer).rings(), 1U);
  auto const nowhere = machine_of("no_pci");
  seats = {bound(nowhere, 0), unbound(nowhere), bound(nowhere, 1)};
  plan = place(seats, Placement::near_reader);
  EXPECT_EQ(plan.rings(), 3U);
  EXPECT_EQ(plan.sites(), (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_EQ(plan.node_of_site(2), -1);
  EXPECT_EQ(place(std::vector<Seat>(3, bound(nowhere, 0)), Placement::near_reader).rings(), 1U);
}

TEST(Placement, SlotsLieWhereThePolicySays) {
  auto const machine = machine_of("gpu_memory_nodes");
  std::vector<Seat> const seats{bound(machine, 0), bound(machine, 8)};
  auto const reader = place(seats, Placement::near_reader);
  EXPECT_EQ(reader.slots_for(0, 1), 8);
  EXPECT_EQ(reader.slots_for(1, 0), 0);
  auto const writer = place(seats, Placement::near_writer);
  EXPECT_EQ(writer.slots_for(0, 1), 0);
  EXPECT_EQ(writer.slots_for(1, 0), 8);
  auto const interleave = place(seats, Placement::interleave);
  EXPECT_EQ(interleave.slots_for(0, 1), -1);
  EXPECT_EQ(interleave.nodes, (std::vector<int>{0, 8})) << "never the GPUs' memory";
}

TEST(Placement, WithoutPciRanksSitBesideTheirCpus) {
  auto const machine = machine_of("no_pci");
  std::vector<Seat> const seats{bound(machine, 0), bound(machine, 1), unbound(machine)};
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_EQ(plan.ranks[0].node, 0);
  EXPECT_EQ(plan.ranks[1].node, 1);
  EXPECT_EQ(plan.ranks[2].node, -1);
  EXPECT_EQ(plan.slots_for(0, 2), 0) << "the writer's, where the reader's is unknown";
  EXPECT_EQ(relation(seats, plan, 0, 1), Relation::other_node);
}

TEST(Placement, RelationsFollowTheTree) {
  auto const machine = machine_of("two_sockets_eight_gpus");
  std::vector<Seat> seats{bound(machine, 0, 0), bound(machine, 0, 1), bound(machine, 0, 2), bound(machine, 1, 4),
                          bound(machine, 0, 0)};
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_EQ(relation(seats, plan, 0, 0), Relation::self);
  EXPECT_EQ(relation(seats, plan, 0, 4), Relation::same_gpu);
  EXPECT_EQ(relation(seats, plan, 0, 1), Relation::same_switch);
  EXPECT_EQ(relation(seats, plan, 0, 2), Relation::same_node);
  EXPECT_EQ(relation(seats, plan, 0, 3), Relation::other_node);
  seats[3].host = 1;
  EXPECT_EQ(relation(seats, plan, 0, 3), Relation::other_host);
}

TEST(Placement, EqualPciAddressesOfTwoHostsAreTwoGpus) {
  auto const machine = machine_of("laptop");
  std::vector<Seat> seats{unbound(machine), unbound(machine)};
  seats[1].host = 1;
  auto const plan = place(seats, Placement::near_reader);
  EXPECT_FALSE(plan.ranks[0].shares_gpu);
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(Placement, StepsAreAPermutationAndPlainWhereAllIsAlike) {
  auto const machine = machine_of("two_sockets_eight_gpus");
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    std::vector<int> plain(ranks - 1);
    std::iota(plain.begin(), plain.end(), 1);
    std::vector<Seat> seats(ranks, bound(machine, 0, 0));
    EXPECT_EQ(place(seats, Placement::near_reader).steps, plain);
    for (std::size_t rank = ranks / 2; rank < ranks; ++rank) seats[rank] = bound(machine, 1, 4);
    auto steps = place(seats, Placement::near_reader).steps;
    std::ranges::sort(steps);
    EXPECT_EQ(steps, plain);
  }
}

TEST(Placement, StepsThatCrossAreSpread) {
  auto const machine = machine_of("two_sockets_eight_gpus");
  std::vector<Seat> seats;
  for (int rank = 0; rank < 8; ++rank) seats.push_back(bound(machine, rank / 4, rank));
  auto const plan = place(seats, Placement::near_reader);
  // Step s crosses 2 min(s, 8 - s) times. No prefix may be far from its share of all 32 crossings.
  int done = 0;
  for (std::size_t taken = 0; taken < plan.steps.size(); ++taken) {
    done += 2 * std::min(plan.steps[taken], 8 - plan.steps[taken]);
    EXPECT_NEAR(done, 32.0 * static_cast<double>(taken + 1) / 7, 3.0) << "after step " << plan.steps[taken];
  }
}

}  // namespace
}  // namespace davit::test
