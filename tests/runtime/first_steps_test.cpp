// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mistakes of somebody's first hour: each is named, and the next call is right.
#include <gtest/gtest.h>

#include "tests/runtime/arguments.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

void next_is_right(Communicator& comm) {
  Arguments a(comm);
  a.run(comm);
  a.check("the next call");
}

TEST(FirstSteps, ABlockThatARankKeepsMustBeAsLongOnBothSides) {
  run_ranks(3, [](int rank, Communicator& comm) {
    for (std::int64_t const kept : {0, 3, 5}) {
      Arguments a(comm);
      if (rank == 1) a.send_counts[1] = kept;
      auto const call = [&] { a.run(comm); };
      auto const text = rank == 1 ? raised<UsageError>(call) : raised<PeerError>(call);
      expect_parts(text, {"send_counts[1] is " + std::to_string(4 * kept) + " bytes", "recv_counts[1], 16 bytes"});
      next_is_right(comm);
    }
  });
}

TEST(FirstSteps, OnlySendMayBeInPlace) {
  run_ranks(2, [](int rank, Communicator& comm) {
    Arguments a(comm);
    if (rank == 0) a.recv = const_cast<void*>(in_place);
    auto const call = [&] { a.run(comm); };
    expect_parts(rank == 0 ? raised<UsageError>(call) : raised<PeerError>(call), {"recv is in_place"});
    next_is_right(comm);
    std::vector<std::int64_t> const counts{2, 2};
    std::vector<float> const numbers(4, 1.0F);
    auto const sum = [&] { comm.reduce_scatterv(numbers.data(), const_cast<void*>(in_place), counts, f32); };
    expect_parts(raised<UsageError>(sum), {"reduce_scatterv", "recv is in_place"});
    next_is_right(comm);
  });
}

TEST(FirstSteps, SetUpAgainstAnotherCallIsAMismatch) {
  run_ranks(2, [](int rank, Communicator& comm) {
    auto const against = [&](char const* name, auto set_up) {
      auto const text = raised<MismatchError>([&] {
        if (rank == 0) set_up();
        if (rank == 1) comm.barrier();
      });
      expect_parts(text, {std::string("rank 0 calls ") + name, "rank 1 calls barrier"});
      next_is_right(comm);
    };
    against("split", [&] { static_cast<void>(comm.split(0)); });
    against("split", [&] { static_cast<void>(comm.dup()); });
    against("allocate", [&] { static_cast<void>(comm.allocate(8)); });
    against("prepare", [&] { comm.prepare(); });
  });
}

TEST(FirstSteps, OptionsThatNameNothingAreRefused) {
  for (bool const path : {true, false}) {
    Options options;
    if (path) options.path = static_cast<Path>(77);
    if (!path) options.host_order = static_cast<HostOrder>(77);
    auto const text = raised<UsageError>([&] { Communicator const comm(threads(1)[0], options); });
    expect_parts(text, {path ? "option path is 77" : "option host_order is 77", "one of davit::"});
  }
}

/// Who comes after the others have given up hears that, not that its call differs from theirs.
TEST(FirstSteps, ALateRankHearsThatTheOthersHaveFailed) {
  std::atomic<bool> over{false};
  Making with;
  with.options.timeout = std::chrono::milliseconds(200);
  with.options.first_timeout = std::chrono::seconds(20);
  run_ranks(2, with, [&](int rank, Communicator& comm) {
    comm.prepare();
    if (rank == 0) {
      EXPECT_FALSE(raised<TimeoutError>([&] { comm.barrier(); }).empty());
      over = true;
      return;
    }
    while (!over) std::this_thread::yield();
    if (pretended_nodes() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // word of it travels
    Arguments const a(comm);
    EXPECT_FALSE(raised<PeerError>([&] { a.run(comm); }).empty());
    EXPECT_FALSE(comm.usable());
  });
}

}  // namespace
}  // namespace davit::test
