// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls on streams that cannot end: nobody hangs, whoever asks is told, streams run out and the GPU goes on working.
#include <gtest/gtest.h>

#include "davit/error.hpp"
#include "tests/runtime/arguments.hpp"
#include "tests/runtime/streams.hpp"

namespace davit::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Asks until it throws. @returns what.
template <class Raised>
std::string raised_by_status(Communicator& comm) {
  return raised<Raised>([&] {
    auto const end = Clock::now() + stretched(milliseconds(10000));
    while (Clock::now() < end) {
      static_cast<void>(comm.status());
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
}

/// The stream has run out, and its device still does what it is told.
void expect_alive(TestStream& stream) {
  EXPECT_TRUE(stream.drain());
  auto& backend = test_device().backend();
  auto const memory = backend.device_memory(test_device().chosen(), 4096);
  auto const engine = backend.make_engine(test_device().chosen(), {});
  engine->submit(Lane::up, CopyOp{memory.get(), memory.get() + 2048, 2048});
  engine->end_before(stream.handle());
  EXPECT_TRUE(stream.drain());
}

TEST(StreamFailures, ARankThatNeverCalls) {
  auto const making = impatient();
  run_on_streams(3, making, [&](int rank, Communicator& comm, TestStream& stream) {
    comm.barrier();
    if (rank == 2) {
      meet(comm);
      return;
    }
    Ring ring(comm, 5000);
    ring.enqueue(comm, stream);
    ring.enqueue(comm, stream);
    auto const start = Clock::now();
    try {
      expect_parts(raised_by_status<TimeoutError>(comm), {"alltoallv", "deadline", "rank 2", "communicator 'test'"});
    } catch (...) {
    }
    EXPECT_LT(Clock::now() - start, making.options.timeout + stretched(milliseconds(2000)));
    EXPECT_FALSE(comm.usable());
    meet(comm);
    expect_alive(stream);
  });
}

TEST(StreamFailures, WithoutAnybodyAsking) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    comm.barrier();
    if (rank == 1) {
      meet(comm);
      return;
    }
    Ring ring(comm, 5000);
    ring.enqueue(comm, stream);
    EXPECT_TRUE(stream.drain()) << "the helper thread lets it run out";
    EXPECT_FALSE(comm.usable());
    EXPECT_THROW(static_cast<void>(comm.status()), TimeoutError);
    meet(comm);
    expect_alive(stream);
  });
}

TEST(StreamFailures, ABlockingCallThatNobodyJoins) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    comm.barrier();
    if (rank == 1) {
      meet(comm);
      return;
    }
    Arguments arguments(comm, 5000);
    expect_parts(raised<TimeoutError>([&] { arguments.run(comm); }), {"alltoallv", "rank 1"});
    meet(comm);
    expect_alive(stream);
  });
}

TEST(StreamFailures, ASubmissionThatIsStuckInAFullQueue) {
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    comm.barrier();
    if (rank == 1) {
      meet(comm);
      return;
    }
    Ring ring(comm, 1000000);  // thousands of operations
    auto const text = raised<TimeoutError>([&] {
      ring.enqueue(comm, stream);
      for (;;) static_cast<void>(comm.status());  // a GPU that takes them all
    });
    expect_parts(text, {"rank 1"});
    EXPECT_FALSE(comm.usable());
    meet(comm);
    expect_alive(stream);
  });
}

TEST(StreamFailures, AFullQueueThatMovesIsNoFailure) {
  run_on_streams(3, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 500000);
    for (int call = 0; call < 4; ++call) {
      if (call == rank) std::this_thread::sleep_for(milliseconds(150));
      ring.enqueue(comm, stream);
    }
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    ring.check(rank, 4);
  });
}

TEST(StreamFailures, ADifferenceFailsBothForGood) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    std::int64_t const count = rank == 0 ? 100 : 90;
    auto const memory = test_device().backend().device_memory(comm.device(), 4096);
    std::vector<std::int64_t> const sends{rank == 0 ? 50 : count, rank == 0 ? count : 50};
    std::vector<std::int64_t> const receives{rank == 0 ? 50 : 80, rank == 0 ? 90 : 50};
    std::vector<std::int64_t> const displs{0, 100};
    comm.alltoallv(memory.get(), sends, displs, i32, memory.get() + 2048, receives, displs, i32,
                   Stream(stream.handle()));
    try {
      auto const end = Clock::now() + stretched(milliseconds(10000));
      while (Clock::now() < end) static_cast<void>(comm.status());
      ADD_FAILURE() << "rank " << rank << " found nothing";
    } catch (MismatchError const& error) {
      expect_parts(error.what(), {"alltoallv", "rank 0 sends 400 bytes", "rank 1", "320 bytes"});
    } catch (PeerError const& error) {  // told by the other
      expect_parts(error.what(), {"has failed", "rank 0 sends 400 bytes"});
    }
    EXPECT_FALSE(comm.usable());
    expect_alive(stream);
  });
}

TEST(StreamFailures, ARefusalFailsThoseWhoEnqueued) {
  run_on_streams(3, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 100);
    if (rank == 1) {
      std::vector<std::int64_t> const short_counts{1, 1};
      expect_parts(raised<UsageError>([&] {
                     comm.alltoallv(nullptr, short_counts, short_counts, i32, nullptr, short_counts, short_counts, i32,
                                    Stream(stream.handle()));
                   }),
                   {"alltoallv"});
      return;
    }
    ring.enqueue(comm, stream);
    auto const text = raised_by_status<PeerError>(comm);
    EXPECT_TRUE(text.find("refused") != std::string::npos || text.find("failed") != std::string::npos) << text;
    EXPECT_FALSE(comm.usable());
    expect_alive(stream);
  });
}

TEST(StreamFailures, APeerThatLeaves) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    comm.barrier();
    if (rank == 1) {
      comm = Communicator();
      return;
    }
    Ring ring(comm, 5000);
    ring.enqueue(comm, stream);
    expect_parts(raised_by_status<PeerError>(comm), {"rank 1 has destroyed its communicator"});
    expect_alive(stream);
  });
}

TEST(StreamFailures, StreamsOfTheOthersRunOnWithoutResult) {
  // Rank 0 gives up; rank 1, which comes later, must not take what rank 0's streams ran out with for data.
  run_on_streams(2, impatient(), [&](int rank, Communicator& comm, TestStream& stream) {
    comm.barrier();
    Ring ring(comm, 5000);
    if (rank == 1) meet(comm);
    try {
      ring.enqueue(comm, stream);
    } catch (PeerError const&) {  // it may be seen already
      EXPECT_EQ(rank, 1);
      return;
    }
    if (rank == 0) {
      EXPECT_FALSE(raised_by_status<TimeoutError>(comm).empty());
      meet(comm);
    } else {
      expect_parts(raised_by_status<PeerError>(comm), {"rank 0 has failed", "deadline"});
    }
    expect_alive(stream);
  });
}

}  // namespace
}  // namespace davit::test
