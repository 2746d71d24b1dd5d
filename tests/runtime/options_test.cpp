// SPDX-License-Identifier: Apache-2.0
/// @file
/// The environment: what each variable may be, and what is said where it cannot. It is read once a process, so each
/// case is a process of its own.
#include "davit/options.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "davit/error.hpp"
#include "tests/support/access.hpp"
#include "tests/support/child.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

std::string summary(Environment const& e) {
  std::string text = "timeout=" + std::to_string(e.timeout.count()) +
                     " path=" + std::to_string(static_cast<int>(e.path)) +
                     " direct_bytes=" + std::to_string(e.direct_bytes) + " slot_bytes=" + std::to_string(e.slot_bytes) +
                     " slots=" + std::to_string(e.slots) + " shm_dir=" + e.shm_dir + " segment=" + e.segment +
                     " host_order=" + std::to_string(static_cast<int>(e.host_order)) +
                     " shared_gpu=" + std::to_string(e.allow_shared_gpu) +
                     " placement=" + std::to_string(static_cast<int>(e.placement)) + " nodes=";
  for (int const node : e.nodes) text += std::to_string(node) + ",";
  return text + " log=" + std::to_string(static_cast<int>(e.log)) + " end";
}

TEST(OptionsTest, DISABLED_ChildReads) {
  try {
    say("read: ", summary(environment()));
    Options const options;
    EXPECT_EQ(options.timeout, environment().timeout);
    EXPECT_EQ(options.path, environment().path);
    EXPECT_EQ(options.direct_bytes, environment().direct_bytes);
    EXPECT_EQ(options.slot_bytes, environment().slot_bytes);
    EXPECT_EQ(options.slots, environment().slots);
    EXPECT_EQ(options.host_order, environment().host_order);
    EXPECT_EQ(options.allow_shared_gpu, environment().allow_shared_gpu);
    EXPECT_EQ(options.placement, environment().placement);
    // Once and for all: what changes later is not looked at.
    setenv("DAVIT_TIMEOUT", "7", 1);
    EXPECT_EQ(options.timeout, environment().timeout);
  } catch (UsageError const& error) {
    say("refused: ", error.what());
    // Not only at the first call.
    EXPECT_EQ(raised<UsageError>([] { static_cast<void>(environment()); }), error.what());
    EXPECT_EQ(raised<UsageError>([] { Communicator const comm(threads(1).front()); }), error.what());
  }
}

std::string read_with(std::vector<std::string> const& variables) {
  Child child("OptionsTest.DISABLED_ChildReads", variables);
  auto const text = child.line("re");  // "read: ", or "refused: "
  EXPECT_EQ(child.wait(), 0) << child.output();
  return text;
}

TEST(OptionsTest, DefaultsAreThoseOfTheManual) {
  std::string const defaults =
      "ad: timeout=60000 path=0 direct_bytes=32768 slot_bytes=0 slots=0 shm_dir=/dev/shm segment=auto host_order=0 "
      "shared_gpu=0 placement=0 nodes= "
      "log=1 end";
  EXPECT_EQ(read_with({}), defaults);
  EXPECT_EQ(read_with({"DAVIT_TIMEOUT=", "DAVIT_PATH=", "DAVIT_DIRECT_BYTES=", "DAVIT_SLOT_BYTES=", "DAVIT_SLOTS=",
                       "DAVIT_SHM_DIR=", "DAVIT_SEGMENT=", "DAVIT_HOST_ORDER=", "DAVIT_ALLOW_SHARED_GPU=",
                       "DAVIT_PLACEMENT=", "DAVIT_NODES=", "DAVIT_LOG="}),
            defaults)
      << "set to nothing is as not set";
}

struct Taken {
  std::string variable;
  std::string part;
};

class VariableTaken : public testing::TestWithParam<Taken> {};

TEST_P(VariableTaken, IsSeen) { expect_parts(read_with({GetParam().variable}), {"ad: ", " " + GetParam().part + " "}); }

INSTANTIATE_TEST_SUITE_P(
    All, VariableTaken,
    testing::Values(
        Taken{"DAVIT_TIMEOUT=1.5", "timeout=1500"}, Taken{"DAVIT_TIMEOUT=0.001", "timeout=1"},
        Taken{"DAVIT_TIMEOUT=999999", "timeout=999999000"}, Taken{"DAVIT_PATH=auto", "path=0"},
        Taken{"DAVIT_PATH=slots", "path=1"}, Taken{"DAVIT_PATH=direct", "path=2"},
        Taken{"DAVIT_DIRECT_BYTES=1", "direct_bytes=1"}, Taken{"DAVIT_DIRECT_BYTES=64K", "direct_bytes=65536"},
        Taken{"DAVIT_DIRECT_BYTES=3M", "direct_bytes=3145728"},
        Taken{"DAVIT_DIRECT_BYTES=2G", "direct_bytes=2147483648"}, Taken{"DAVIT_SLOT_BYTES=4K", "slot_bytes=4096"},
        Taken{"DAVIT_SLOT_BYTES=4096", "slot_bytes=4096"}, Taken{"DAVIT_SLOT_BYTES=1G", "slot_bytes=1073741824"},
        Taken{"DAVIT_SLOT_BYTES=0", "slot_bytes=0"}, Taken{"DAVIT_SLOTS=1", "slots=1"},
        Taken{"DAVIT_SLOTS=1024", "slots=1024"}, Taken{"DAVIT_SHM_DIR=/tmp/there", "shm_dir=/tmp/there"},
        Taken{"DAVIT_SEGMENT=auto", "segment=auto"}, Taken{"DAVIT_SEGMENT=descriptor", "segment=descriptor"},
        Taken{"DAVIT_SEGMENT=name", "segment=name"}, Taken{"DAVIT_HOST_ORDER=eager", "host_order=0"},
        Taken{"DAVIT_HOST_ORDER=queues", "host_order=1"}, Taken{"DAVIT_HOST_ORDER=submission", "host_order=2"},
        Taken{"DAVIT_ALLOW_SHARED_GPU=1", "shared_gpu=1"}, Taken{"DAVIT_ALLOW_SHARED_GPU=0", "shared_gpu=0"},
        Taken{"DAVIT_PLACEMENT=near-reader", "placement=0"}, Taken{"DAVIT_PLACEMENT=near-writer", "placement=1"},
        Taken{"DAVIT_PLACEMENT=interleave", "placement=2"}, Taken{"DAVIT_NODES=0,0,1,1", "nodes=0,0,1,1,"},
        Taken{"DAVIT_NODES=3", "nodes=3,"}));

INSTANTIATE_TEST_SUITE_P(LogLevels, VariableTaken,
                         testing::Values(Taken{"DAVIT_LOG=error", "nodes= log=0"},
                                         Taken{"DAVIT_LOG=warn", "nodes= log=1"},
                                         Taken{"DAVIT_LOG=info", "nodes= log=2"},
                                         Taken{"DAVIT_LOG=debug", "nodes= log=3"}),
                         [](auto const& level) { return level.param.variable.substr(10); });

struct NotTaken {
  std::string name;
  std::string value;
  std::vector<std::string> bound;
};

class VariableRefused : public testing::TestWithParam<NotTaken> {};

TEST_P(VariableRefused, IsNamedWithValueAndBound) {
  auto const& [name, value, bound] = GetParam();
  auto const text = read_with({name + "=" + value});
  expect_parts(text, {"fused: davit: ", name + " is '" + value + "'", "must be"});
  expect_parts(text, bound);
}

std::vector<NotTaken> refused() {
  std::vector<NotTaken> all;
  for (auto const* const value : {"0", "-1", "x", "1s", "1e9", "inf", "nan", "1,5", "0.0001", " 1"}) {
    all.push_back({"DAVIT_TIMEOUT", value, {"seconds", "0.001", "1000000"}});
  }
  for (auto const* const value : {"Slots", "none", "1"})
    all.push_back({"DAVIT_PATH", value, {"auto", "slots", "direct"}});
  for (auto const* const value : {"0", "-1", "K", "1k", "1KB", "1.5K", "99999999999999999999"}) {
    all.push_back({"DAVIT_DIRECT_BYTES", value, {"bytes", "1"}});
  }
  for (auto const* const value : {"1", "2048", "5000", "2G", "-4096", "12K", "4096 "}) {
    all.push_back({"DAVIT_SLOT_BYTES", value, {"power of two", "4K", "1G"}});
  }
  for (auto const* const value : {"-1", "1025", "four", "1.5"}) all.push_back({"DAVIT_SLOTS", value, {"0 to 1024"}});
  for (auto const* const value : {"file", "NAME"})
    all.push_back({"DAVIT_SEGMENT", value, {"auto", "descriptor", "name"}});
  for (auto const* const value : {"lazy", "0"})
    all.push_back({"DAVIT_HOST_ORDER", value, {"eager", "queues", "submission"}});
  for (auto const* const value : {"yes", "2"}) all.push_back({"DAVIT_ALLOW_SHARED_GPU", value, {"0", "1"}});
  for (auto const* const value : {"reader", "0"})
    all.push_back({"DAVIT_PLACEMENT", value, {"near-reader", "near-writer", "interleave"}});
  for (auto const* const value : {"verbose", "3"})
    all.push_back({"DAVIT_LOG", value, {"error", "warn", "info", "debug"}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, VariableRefused, testing::ValuesIn(refused()));

class NodesRefused : public testing::TestWithParam<char const*> {};

TEST_P(NodesRefused, IsNamedWithTheBound) {
  expect_parts(read_with({std::string("DAVIT_NODES=") + GetParam()}), {"fused: ", "DAVIT_NODES", "0,0,1,1"});
}
INSTANTIATE_TEST_SUITE_P(All, NodesRefused, testing::Values("a", "0,-1", "0;1", "0,,1", ",0", "1.5"));

}  // namespace
}  // namespace davit::test
