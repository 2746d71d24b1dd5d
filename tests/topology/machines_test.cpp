// SPDX-License-Identifier: Apache-2.0
/// @file
/// Machines from files: what is read from good ones, and what is said of bad ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "davit/error.hpp"
#include "tests/support/ranks.hpp"
#include "transports/topology.hpp"

namespace davit::test {
namespace {

std::string path_of(std::string const& name) { return std::string(DAVIT_TEST_MACHINES) + "/" + name + ".xml"; }

std::string gpus_of(Machine const& machine) {
  std::string text;
  for (auto const& gpu : machine.gpus) {
    text += gpu.pci.text() + " on";
    for (int const node : gpu.numa) text += " " + std::to_string(node);
    text += " of " + machine.root_complexes.at(static_cast<std::size_t>(gpu.root_complex)).name + "; ";
  }
  return text;
}

TEST(Pci, AddressesAreReadAsWritten) {
  EXPECT_EQ(PciAddress::parse("0000:17:00.0")->text(), "0000:17:00.0");
  EXPECT_EQ(PciAddress::parse("00000004:E5:1f.7")->text(), "0004:e5:1f.7");
  EXPECT_EQ(PciAddress::parse("17:00.1")->text(), "0000:17:00.1");
  EXPECT_EQ(PciAddress::parse("12345:17:00.0")->text(), "12345:17:00.0");
  for (auto const* const text : {"", "17", "17:00", "17:00.", "17:00.8", "17:20.0", "100:00.0", "x:17:00.0",
                                 "0:0:0:0.0", ":17:00.0", "17:00.0 ", "-1:00.0", "100000000:00:00.0"}) {
    EXPECT_EQ(PciAddress::parse(text), std::nullopt) << text;
  }
}

TEST(Machines, Laptop) {
  Topology const topology(path_of("laptop"));
  auto const& machine = topology.machine();
  EXPECT_FALSE(topology.is_this_machine());
  EXPECT_EQ(gpus_of(machine), "0000:01:00.0 on 0 of 0000:00; ");
  EXPECT_EQ(machine.cpus, 8);
  EXPECT_EQ(machine.nodes.at(0).bytes, std::uint64_t{32} << 30);
  EXPECT_NEAR(machine.gpus.at(0).link_gigabytes, 15.75, 0.01);
}

TEST(Machines, SwitchesAreNamedFromTheRootDown) {
  auto const machine = Topology(path_of("two_sockets_eight_gpus")).machine();
  ASSERT_EQ(machine.gpus.size(), 8U);
  EXPECT_EQ(machine.packages.size(), 2U);
  EXPECT_EQ(machine.root_complexes.size(), 4U);
  std::vector<std::string> bridges;
  for (auto const& bridge : machine.gpus.at(5).bridges) bridges.push_back(bridge.pci.text());
  EXPECT_EQ(machine.gpus.at(5).pci.text(), "0000:94:00.0");
  EXPECT_EQ(bridges, (std::vector<std::string>{"0000:90:01.0", "0000:91:00.0", "0000:92:01.0"}));
}

TEST(Machines, DisplayChipOfABoardIsNoGpu) {
  EXPECT_EQ(gpus_of(Topology(path_of("four_nodes_a_socket")).machine()),
            "0000:21:00.0 on 1 of 0000:20; 0000:41:00.0 on 2 of 0000:40; 0000:a1:00.0 on 5 of 0000:a0; "
            "0000:c1:00.0 on 6 of 0000:c0; ");
}

TEST(Machines, MemoryOfGpusHoldsNoSlots) {
  auto const machine = Topology(path_of("gpu_memory_nodes")).machine();
  EXPECT_EQ(gpus_of(machine), "0004:01:00.0 on 0 of 0004:00; 0035:01:00.0 on 8 of 0035:00; ");
  EXPECT_TRUE(machine.node(8)->holds_slots);
  EXPECT_FALSE(machine.node(16)->holds_slots);
  EXPECT_EQ(machine.node(16)->kind, "GPUMemory");
}

TEST(Machines, WithoutPci) {
  auto const machine = Topology(path_of("no_pci")).machine();
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_TRUE(machine.root_complexes.empty());
  EXPECT_EQ(machine.nodes.size(), 2U);
}

TEST(Machines, PackagesInPackagesLeaveNoNodeInOneThatIsNotThere) {
  auto const machine = Topology(path_of("nested_packages")).machine();
  ASSERT_EQ(machine.nodes.size(), 2U);
  for (auto const& node : machine.nodes) EXPECT_LT(node.package, static_cast<int>(machine.packages.size()));
}

TEST(Machines, OfAFileIsNeverBound) {
  Topology const topology(path_of("laptop"));
  std::vector<std::byte> memory(1 << 16);
  EXPECT_NE(topology.bind(memory.data(), memory.size(), 0), 0) << "hwloc says yes and does nothing";
  EXPECT_EQ(topology.node_of(memory.data()), -1);
  EXPECT_TRUE(topology.memory_policy().none());
}

class BadFile : public testing::TestWithParam<std::pair<char const*, char const*>> {};
INSTANTIATE_TEST_SUITE_P(All, BadFile,
                         testing::Values(std::pair{"bad_truncated", "damaged"}, std::pair{"bad_empty", "no hwloc XML"},
                                         std::pair{"bad_other", "no hwloc XML"}, std::pair{"bad_sets", "damaged"},
                                         std::pair{"bad_version", "written by hwloc 9"},
                                         std::pair{"not_there", "No such file"}),
                         [](auto const& one) { return std::string(one.param.first); });

TEST_P(BadFile, IsRefusedWithTheReason) {
  auto const [name, reason] = GetParam();
  expect_parts(raised<SystemError>([&, file = path_of(name)] { Topology const topology(file); }), {name, reason});
}

TEST(ThisMachine, HasMemoryForSlots) {
  auto const& topology = Topology::of_this_machine();
  auto const& nodes = topology.machine().nodes;
  EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(), [](auto const& node) { return node.holds_slots; }));
  EXPECT_GT(Topology::usable_cpus().count(), 0U);
  EXPECT_TRUE(Topology::keep_thread_to(Topology::usable_cpus()));
  EXPECT_FALSE(Topology::keep_thread_to({})) << "an empty set would keep it from running at all";
}

}  // namespace
}  // namespace davit::test
