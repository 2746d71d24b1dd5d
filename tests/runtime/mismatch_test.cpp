// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks that disagree: both learn both values, nothing is delivered wrong, and the next call is right.
#include <gtest/gtest.h>

#include <functional>

#include "tests/runtime/arguments.hpp"
#include "tests/runtime/circumstances.hpp"
#include "tests/support/random.hpp"

namespace davit::test {
namespace {

class Mismatch : public UnderCircumstances {
 protected:
  [[nodiscard]] static Making small_slots(Random& random) {
    auto with = setup();
    with.options.slot_bytes = 4096;
    with.options.slots = random.one_of({1, 2});
    with.options.direct_bytes = random.one_of<std::size_t>({1, 9000, 1 << 20});
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Mismatch, testing::ValuesIn(circumstances({2, 3, 4})), circumstances_name);

std::string numbers(std::int64_t count) {
  return std::to_string(4 * count) + " bytes (" + std::to_string(count) + " x f32)";
}

/// Rank `from` sends `sent` numbers to rank `to`, which expects `expected`; all others exchange `usual`.
void disagree(Communicator& comm, int from, int to, std::int64_t sent, std::int64_t expected, std::int64_t usual) {
  auto const what = std::to_string(sent) + " for " + std::to_string(expected) + " from rank " + std::to_string(from) +
                    " to " + std::to_string(to);
  auto const rank = comm.rank();
  Arguments a(comm, std::max({sent, expected, usual}));
  a.send_dtype = a.recv_dtype = f32;
  for (std::size_t peer = 0; peer < a.ranks; ++peer) a.send_counts[peer] = a.recv_counts[peer] = usual;
  if (rank == from) a.send_counts[static_cast<std::size_t>(to)] = sent;
  if (rank == to) a.recv_counts[static_cast<std::size_t>(from)] = expected;
  if (rank == from || rank == to) {
    auto const text = raised<MismatchError>([&] { a.run(comm); });
    expect_parts(text, {"alltoallv: ",
                        "rank " + std::to_string(from) + " sends " + numbers(sent) + " to rank " + std::to_string(to) +
                            ", which expects " + numbers(expected),
                        "call " + std::to_string(comm.calls()) + "]"});
  } else {
    // Third ranks finish, or hear of it in this call.
    try {
      a.run(comm);
      EXPECT_TRUE(a.target.intact()) << what;
    } catch (MismatchError const&) {
    }
  }
  EXPECT_TRUE(a.target.intact()) << what;
  EXPECT_TRUE(comm.usable()) << what;
  exchange_is_right(comm, "after " + what, usual);
}

TEST_P(Mismatch, OfFewNumbers) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int, Communicator& comm) {
    for (int from = 0; from < comm.size(); ++from) {
      auto const to = (from + 1) % comm.size();
      disagree(comm, from, to, 4, 3, 4);
      disagree(comm, from, to, 4, 0, 4);
      disagree(comm, to, from, 0, 4, 4);
      disagree(comm, to, from, 3, 4, 4);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_P(Mismatch, OfManyChunks) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int, Communicator& comm) {
    for (int round = 0; round < 2; ++round) {
      disagree(comm, 0, comm.size() - 1, 9 * 1024, 2 * 1024, 3000);
      disagree(comm, comm.size() - 1, 0, 5, 11000, 5000);
      disagree(comm, 1, 0, 9 * 1024 + 1, 9 * 1024, 9 * 1024);
      disagree(comm, 1, 0, 0, 9 * 1024, 2048);
      disagree(comm, 0, 1, 9 * 1024, 0, 1);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_P(Mismatch, ThirdRanksDataAreRightOrTheyHearOfIt) {
  if (ranks() < 4) GTEST_SKIP() << "no two third ranks";
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    for (int round = 0; round < 5; ++round) {
      Arguments a(comm, 4000);
      if (rank == 0) a.send_counts[1] = 1;
      try {
        a.run(comm);
        EXPECT_GE(rank, 2);
        a.check();
      } catch (MismatchError const&) {
      }
      exchange_is_right(comm, "after", 2000);
    }
  });
}

TEST_P(Mismatch, ComesOutOfWait) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    comm.prepare();
    Arguments before(comm, 3000);
    Arguments wrong(comm, 3000);
    Arguments after(comm, 3000);
    if (rank == 0) wrong.send_counts[1] = 2999;
    auto first = before.post(comm);
    auto second = wrong.post(comm);
    auto third = after.post(comm);
    third.wait();
    if (rank < 2) expect_parts(raised<MismatchError>([&] { second.wait(); }), {"11996 bytes", "12000 bytes"});
    if (rank >= 2) second.wait();
    first.wait();
    before.check();
    after.check();
  });
}

TEST_P(Mismatch, IsFoundAtInitOfAPlan) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    Arguments a(comm, 10);
    if (rank == 1) a.recv_counts[0] = 9;
    auto const make = [&] { static_cast<void>(a.plan(comm)); };
    if (rank < 2) {
      expect_parts(raised<MismatchError>(make), {"alltoallv_init", "40 bytes (10 x i32)", "36 bytes (9 x i32)"});
    } else {
      make();
    }
    exchange_is_right(comm);
  });
}

TEST_P(Mismatch, InPlaceCountsThatAreNotSymmetric) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    Arguments a(comm, 2000);
    a.send = davit::in_place;
    if (rank == 0) a.recv_counts[1] = 1500;
    if (rank < 2) {
      expect_parts(raised<MismatchError>([&] { a.run(comm); }), {"8000 bytes", "6000 bytes"});
    } else {
      a.run(comm);
    }
    exchange_is_right(comm, "", 2000);
  });
}

// --- Different operations at the same number.

struct Operation {
  char const* name;
  std::function<void(Communicator&)> call;
};

std::vector<Operation> const kOperations{
    {"barrier", [](Communicator& comm) { comm.barrier(); }},
    {"alltoallv", [](Communicator& comm) { Arguments(comm, 3000).run(comm); }},
    {"alltoallv_init", [](Communicator& comm) { static_cast<void>(Arguments(comm, 3000).plan(comm)); }},
    {"allgatherv",
     [](Communicator& comm) {
       Arguments a(comm, 3000);
       comm.allgatherv(a.send, 3000, i32, a.recv, a.recv_counts, a.recv_displs, i32);
     }},
    {"reduce_scatterv",
     [](Communicator& comm) {
       Arguments a(comm, 3000);
       Memory const send(bytes_of(std::vector<float>(a.source.size(), 1.0F)));
       comm.reduce_scatterv(send.data(), a.recv, a.send_counts, f32);
     }},
};

TEST_P(Mismatch, OfOperations) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    for (auto const& one : kOperations) {
      for (auto const& other : kOperations) {
        if (one.name == other.name) continue;
        bool const odd = rank == 1;
        auto const text = raised<MismatchError>([&] { (odd ? one : other).call(comm); });
        expect_parts(text, {std::string("calls ") + one.name, std::string("calls ") + other.name, "rank 1"});
        EXPECT_TRUE(comm.usable());
        exchange_is_right(comm, std::string("after ") + one.name + " and " + other.name, 1500);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// --- The dense ones.

TEST_P(Mismatch, OfAllgathervBlocks) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    for (int round = 0; round < 4; ++round) {
      // Rank 1 expects another length of rank 0 than all others do.
      Arguments a(comm, 4000);
      std::int64_t const less = round % 2 == 0 ? 3999 : 0;
      if (rank == 1) a.recv_counts[0] = less;
      auto const call = [&] { comm.allgatherv(a.send, 4000, i32, a.recv, a.recv_counts, a.recv_displs, i32); };
      if (rank < 2) {
        expect_parts(raised<MismatchError>(call),
                     {"allgatherv", "16000 bytes (4000 x i32)", std::to_string(4 * less) + " bytes"});
      } else {
        call();
      }
      exchange_is_right(comm, "after", 2000);
    }
  });
}

TEST_P(Mismatch, OfReduceScattervDtypes) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    Arguments a(comm, 1000);
    auto const call = [&] { comm.reduce_scatterv(a.send, a.recv, a.send_counts, rank == 0 ? f16 : bf16); };
    expect_parts(raised<MismatchError>(call), {"reduce_scatterv", "f16", "bf16"});
    exchange_is_right(comm, "after", 2000);
  });
}

/// The sum needs all ranks, so no rank may take a result from an exchange in which two disagree.
TEST_P(Mismatch, OfReduceScattervCountsConcernsAll) {
  Random random;
  run_ranks(ranks(), small_slots(random), [](int rank, Communicator& comm) {
    auto const n = static_cast<std::size_t>(comm.size());
    for (std::int64_t const other : {5000, 3, 0}) {
      Memory const send(bytes_of(std::vector<float>(n * 5000, 1.0F)));
      Memory const recv(bytes_of(std::vector<float>(5000, -1.0F)));
      std::vector<std::int64_t> counts(n, 4000);
      if (rank + 1 == comm.size()) counts[0] = other;  // the last rank thinks otherwise of rank 0's block
      auto const call = [&] { comm.reduce_scatterv(send.data(), recv.data(), counts, f32); };
      bool const concerned = rank == 0 || rank + 1 == comm.size();
      if (concerned) {
        expect_parts(raised<MismatchError>(call),
                     {"reduce_scatterv", "16000 bytes", std::to_string(4 * other) + " bytes"});
      } else {
        try {
          call();
          std::vector<float> const sums(4000, static_cast<float>(n));
          auto const expected = bytes_of(sums);
          auto const got = recv.read(0, expected.size());
          ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin()))
              << "rank " << rank << " got a wrong sum in silence";
        } catch (MismatchError const&) {
        }
      }
      exchange_is_right(comm, "after", 2000);
    }
  });
}

TEST(MismatchText, GivesTheTypeOfTheSender) {
  run_ranks(2, [](int rank, Communicator& comm) {
    Arguments a(comm, 8);
    if (rank == 0) {
      a.send_dtype = f32;
      a.recv_dtype = u8;
      a.recv_counts = {32, 32};
      a.recv_displs = {0, 32};
      a.send_counts = {8, 7};
    }
    expect_parts(raised<MismatchError>([&] { a.run(comm); }), {"28 bytes (7 x f32)", "32 bytes (8 x i32)"});
    exchange_is_right(comm);
  });
}

}  // namespace
}  // namespace davit::test
