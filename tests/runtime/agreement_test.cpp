// SPDX-License-Identifier: Apache-2.0
/// @file
/// Creation: options that differ, that cannot be, that only one rank has; ranks that do not come.
#include <gtest/gtest.h>

#include <functional>

#include "tests/runtime/arguments.hpp"
#include "tests/support/child.hpp"
#include "tests/support/files.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/nodes.hpp"

namespace davit::test {
namespace {

Options options_of_test() { return Making::patient(); }

struct Difference {
  std::string name;
  std::function<void(Options&)> on_rank_0;
  std::function<void(Options&)> on_rank_2;
  std::vector<std::string> parts;
};

std::vector<Difference> const kDifferences{
    {"SlotBytes",
     [](Options& o) { o.slot_bytes = 4096; },
     [](Options& o) { o.slot_bytes = 8192; },
     {"slot_bytes", "4096", "8192"}},
    {"Slots", [](Options& o) { o.slots = 3; }, [](Options& o) { o.slots = 5; }, {"slots", "3", "5"}},
    {"DirectBytes",
     [](Options& o) { o.direct_bytes = 777; },
     [](Options& o) { o.direct_bytes = 888; },
     {"direct_bytes", "777", "888"}},
    {"Path",
     [](Options& o) { o.path = Path::slots; },
     [](Options& o) { o.path = Path::automatic; },
     {"path", "slots", "auto"}},
    {"PathDirect",
     [](Options& o) { o.path = Path::direct; },
     [](Options& o) { o.path = Path::slots; },
     {"path", "direct", "slots"}},
    {"HostOrder",
     [](Options& o) { o.host_order = HostOrder::queues; },
     [](Options& o) { o.host_order = HostOrder::submission; },
     {"host_order", "queues", "submission"}},
    {"HostOrderEager",
     [](Options& o) { o.host_order = HostOrder::eager; },
     [](Options& o) { o.host_order = HostOrder::queues; },
     {"host_order", "eager", "queues"}},
};

class OptionsDiffer : public testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(All, OptionsDiffer, testing::ValuesIn(kDifferences),
                         [](auto const& d) { return d.param.name; });

TEST_P(OptionsDiffer, IsAMismatchOnAllRanks) {
  auto const& difference = GetParam();
  auto const thrown = play_ranks(3, [&](int rank, std::shared_ptr<Bootstrap> const& bootstrap) {
    for (int round = 0; round < 3; ++round) {
      auto options = options_of_test();
      (rank == 2 ? difference.on_rank_2 : difference.on_rank_0)(options);
      auto parts = difference.parts;
      parts.insert(parts.end(), {"communicator 'test'", "on rank 0", "on rank 2"});
      expect_parts(raised<MismatchError>([&] { Communicator const comm(bootstrap, options); }), parts);
    }
    auto options = options_of_test();
    difference.on_rank_0(options);
    auto comm = made(bootstrap, options);
    exchange_is_right(comm);
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

TEST(OptionsMayDiffer, InTimeOutAndName) {
  auto const thrown = play_ranks(2, [&](int rank, std::shared_ptr<Bootstrap> const& bootstrap) {
    auto options = options_of_test();
    options.timeout += std::chrono::milliseconds(rank);
    options.first_timeout = options.timeout + std::chrono::seconds(rank);
    options.name = "mine" + std::to_string(rank);
    auto comm = made(bootstrap, options);
    exchange_is_right(comm);
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

struct Wrong {
  std::string name;
  std::function<void(Options&)> spoil;
  std::vector<std::string> parts;
};

std::vector<Wrong> const kWrong{
    {"SlotBytesOdd",
     [](Options& o) { o.slot_bytes = 5000; },
     {"option slot_bytes is 5000", "power of two from 4096 to 1073741824"}},
    {"SlotBytesSmall", [](Options& o) { o.slot_bytes = 2048; }, {"option slot_bytes is 2048"}},
    {"SlotBytesLarge", [](Options& o) { o.slot_bytes = std::size_t{1} << 31; }, {"option slot_bytes is 2147483648"}},
    {"SlotsNegative", [](Options& o) { o.slots = -1; }, {"option slots is -1", "0 to 1024"}},
    {"SlotsMany", [](Options& o) { o.slots = 1025; }, {"option slots is 1025", "0 to 1024"}},
    {"DirectBytes", [](Options& o) { o.direct_bytes = 0; }, {"option direct_bytes is 0", "1 or more"}},
    {"Timeout",
     [](Options& o) { o.timeout = std::chrono::milliseconds(0); },
     {"option timeout is 0", "1 to 1000000000 ms"}},
    {"TimeoutNegative",
     [](Options& o) { o.timeout = std::chrono::milliseconds(-5); },
     {"option timeout is -5", "1 to 1000000000 ms"}},
    {"TimeoutEndless",
     [](Options& o) { o.timeout = std::chrono::milliseconds::max(); },
     {"option timeout is 9223372036854775807", "1 to 1000000000 ms"}},
    {"FirstTimeout",
     [](Options& o) { o.first_timeout = std::chrono::milliseconds(0); },
     {"option first_timeout is 0", "1 to 1000000000 ms"}},
};

class OptionWrong : public testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(All, OptionWrong, testing::ValuesIn(kWrong), [](auto const& w) { return w.param.name; });

TEST_P(OptionWrong, IsNamedHereAndToldThere) {
  auto const& wrong = GetParam();
  auto const thrown = play_ranks(3, [&](int rank, std::shared_ptr<Bootstrap> const& bootstrap) {
    for (int culprit = 0; culprit < 3; ++culprit) {
      auto options = options_of_test();
      if (rank == culprit) wrong.spoil(options);
      auto const make = [&] { Communicator const comm(bootstrap, options); };
      auto const text = rank == culprit ? raised<UsageError>(make) : peer_error(make, culprit);
      auto parts = wrong.parts;
      if (rank != culprit) parts.push_back("rank " + std::to_string(culprit) + " refused");
      expect_parts(text, parts);
    }
    auto comm = made(bootstrap, options_of_test());
    exchange_is_right(comm);
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

TEST(Creation, DirectPathInAStrictOrderIsRefused) {
  if (pretended_nodes() > 1) GTEST_SKIP() << "refused for another reason";
  auto const thrown = play_ranks(2, [&](int, std::shared_ptr<Bootstrap> const& bootstrap) {
    auto options = options_of_test();
    options.path = Path::direct;
    options.host_order = HostOrder::queues;
    expect_parts(raised<SystemError>([&] { Communicator const comm(bootstrap, options); }),
                 {"path 'direct'", "strict order"});
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

TEST(Creation, ARankThatDoesNotComeIsNamed) {
  auto const thrown = play_ranks(3, [&](int rank, std::shared_ptr<Bootstrap> const& bootstrap) {
    if (rank == 1) return;
    auto options = options_of_test();
    options.timeout = std::chrono::milliseconds(200);
    expect_parts(raised<TimeoutError>([&] { Communicator const comm(bootstrap, options); }), {"rank 1 of 3"});
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

TEST(Creation, LongestTimeOutCanBe) {
  Making with;
  with.options.timeout = std::chrono::milliseconds(1'000'000'000);
  run_ranks(2, with, [](int, Communicator& comm) { exchange_is_right(comm); });
}

// --- A file system that is too small, in a process with a mount namespace of its own.

TEST(SmallFileSystem, DISABLED_ChildHasTwoRanks) {
  std::string const directory(std::getenv("DAVIT_TEST_DIRECTORY"));
  // Room for the control pages of both ranks and the slots of one.
  if (!mount_small_tmpfs(directory, std::size_t{1} << 20)) return say("result: ", "no namespace");
  Making with;
  with.options.slot_bytes = std::size_t{128} << 10;
  with.options.slots = 2;
  auto const descriptors = open_descriptors();
  run_ranks(2, with, [](int, Communicator& comm) {
    auto const needed = std::to_string(4 * ((128 << 10) + 4096));
    for (int round = 0; round < 3; ++round) {
      try {
        comm.prepare();
        ADD_FAILURE() << "it fits";
      } catch (SystemError const& error) {
        expect_parts(error.what(), {"needed " + needed + " bytes", "free ", "DAVIT_SLOT_BYTES"});
      } catch (PeerError const& error) {
        EXPECT_EQ(error.rank(), 1 - comm.rank());
        expect_parts(error.what(), {"refused", "needed " + needed, "free "});
      }
      EXPECT_TRUE(comm.usable());
    }
  });
  EXPECT_EQ(open_descriptors(), descriptors);
  // Not even the control pages.
  auto const thrown = play_ranks(40, [&](int, std::shared_ptr<Bootstrap> const& bootstrap) {
    try {
      Communicator const comm(bootstrap, with.options);
      ADD_FAILURE() << "it fits";
    } catch (SystemError const& error) {
      expect_parts(error.what(), {directory, "needed ", "free "});
    } catch (PeerError const& error) {
      expect_parts(error.what(), {"refused", "needed "});
    }
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
  with.options.slot_bytes = 4096;
  run_ranks(2, with, [](int, Communicator& comm) { exchange_is_right(comm); });
  say("result: ", testing::Test::HasFailure() ? "failed" : "ok");
}

TEST(SmallFileSystem, IsAnErrorThatLeavesTheRestUsable) {
  SharedDirectory const directory;
  Child child("SmallFileSystem.DISABLED_ChildHasTwoRanks",
              {"DAVIT_TEST_DIRECTORY=" + directory.path(), "DAVIT_SHM_DIR=" + directory.path()});
  auto const result = child.line("result: ");
  EXPECT_EQ(child.wait(), 0) << child.output();
  if (result == "no namespace")
    GTEST_SKIP() << "*** A FULL FILE SYSTEM WAS NOT TESTED: this user may not mount one ***";
  EXPECT_EQ(result, "ok") << child.output();
}

}  // namespace
}  // namespace davit::test
