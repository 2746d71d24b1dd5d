// SPDX-License-Identifier: Apache-2.0
/// @file
/// Under mpirun: alltoallv against MPI_Alltoallv, and whatever else exchanges.
#include <thread>

#include "davit/error.hpp"
#include "tests/runtime/mpi_world.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

class MpiExchange : public MpiWorld {};

/// Sizes around what the options of this run make special.
Sizes sizes_of(Communicator const& comm) {
  auto const use = memory_use(comm.size(), comm.options());
  return {use.slot_bytes, comm.options().direct_bytes, std::min<std::uint64_t>(use.slot_bytes * 2, 200000)};
}

TEST_F(MpiExchange, EqualsMpiAlltoallv) {
  auto comm = make();
  Random same(1);
  for (int round = 0; round < 30; ++round) {
    Exchange const exchange(same, size_, random_matrix(same, size_, sizes_of(comm)));
    Buffers buffers(exchange, rank_);
    buffers.run(comm);
    buffers.check("round " + std::to_string(round));
    // The same by MPI, in bytes: an independent word on what must come.
    std::vector<int> numbers[4];
    auto const add = [&](Side const& side, int first) {
      auto const width = static_cast<std::int64_t>(size_of(side.dtype));
      for (std::size_t peer = 0; peer < side.counts.size(); ++peer) {
        numbers[first].push_back(static_cast<int>(side.counts[peer] * width));
        numbers[first + 1].push_back(side.counts[peer] == 0 ? 0 : static_cast<int>(side.displs[peer] * width));
      }
    };
    add(exchange.send(rank_), 0);
    add(exchange.recv(rank_), 2);
    auto const sent = exchange.sent(rank_);
    std::vector<std::byte> received(exchange.recv(rank_).bytes, kUntouched);
    MPI_Alltoallv(sent.data(), numbers[0].data(), numbers[1].data(), MPI_BYTE, received.data(), numbers[2].data(),
                  numbers[3].data(), MPI_BYTE, MPI_COMM_WORLD);
    ASSERT_TRUE(received == exchange.received(rank_)) << "MPI and the naive copy differ";
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(MpiExchange, InPlaceAndPlans) {
  auto comm = make();
  Random same(2);
  for (int round = 0; round < 10; ++round) {
    Exchange const exchange(same, size_, made_symmetric(random_matrix(same, size_, sizes_of(comm)), size_));
    Buffers in_place(exchange, rank_, true);
    in_place.run(comm);
    in_place.check();
    Buffers planned(exchange, rank_);
    auto plan = planned.plan(comm);
    for (int start = 0; start < 3; ++start) {
      planned.reset();
      plan.start();
      plan.wait();
      planned.check();
    }
  }
}

TEST_F(MpiExchange, SeveralOpenWaitedForInAnyOrder) {
  auto comm = make();
  comm.prepare();
  Random same(3);
  Random mine(static_cast<std::uint64_t>(100 + rank_));
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<std::unique_ptr<Buffers>> buffers;
    std::vector<Request> requests;
    for (int i = 0; i < 4; ++i) {
      exchanges.push_back(std::make_unique<Exchange>(same, size_, random_matrix(same, size_, sizes_of(comm))));
      buffers.push_back(std::make_unique<Buffers>(*exchanges.back(), rank_));
      requests.push_back(buffers.back()->post(comm));
    }
    std::shuffle(requests.begin(), requests.end(), mine.engine());
    for (auto& request : requests) request.wait();
    for (auto const& one : buffers) one->check();
  }
}

TEST_F(MpiExchange, DenseOnes) {
  auto comm = make();
  for (std::int64_t const count : {1, 3000, 100000}) {
    auto const n = static_cast<std::size_t>(size_);
    std::vector<std::int64_t> const counts(n, count);
    std::vector<std::int64_t> displs(n);
    std::vector<int> mpi_counts(n, static_cast<int>(count));
    for (std::size_t r = 0; r < n; ++r) displs[r] = static_cast<std::int64_t>(r) * count;
    std::vector<float> mine(static_cast<std::size_t>(count) * n);
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank_)) % 1000);
    std::vector<float> all(mine.size());
    std::vector<float> all_by_mpi(mine.size());
    comm.allgatherv(mine.data(), count, f32, all.data(), counts, displs, f32);
    MPI_Allgather(mine.data(), static_cast<int>(count), MPI_FLOAT, all_by_mpi.data(), static_cast<int>(count),
                  MPI_FLOAT, MPI_COMM_WORLD);
    EXPECT_EQ(all, all_by_mpi);
    std::vector<float> sum(static_cast<std::size_t>(count));
    std::vector<float> sum_by_mpi(sum.size());
    comm.reduce_scatterv(mine.data(), sum.data(), counts, f32);
    MPI_Reduce_scatter(mine.data(), sum_by_mpi.data(), mpi_counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_EQ(sum, sum_by_mpi);  // small whole numbers: exact in any order
  }
}

TEST_F(MpiExchange, PartsAndTwins) {
  auto comm = make();
  auto part = comm.split(rank_ % 2, -rank_);
  auto twin = comm.dup();
  Random same(4);
  for (int round = 0; round < 5; ++round) {
    for (auto* const one : {&comm, &part, &twin}) {
      Random numbers(static_cast<std::uint64_t>(round));
      Exchange const exchange(numbers, one->size(), random_matrix(numbers, one->size(), sizes_of(*one)));
      Buffers buffers(exchange, one->rank());
      buffers.run(*one);
      buffers.check(one->name());
    }
  }
}

TEST_F(MpiExchange, TwoCommunicatorsFromTwoThreadsAtOnce) {
  auto comm = make();
  auto twin = comm.dup();
  if (on_several_nodes() && thread_level() < MPI_THREAD_MULTIPLE) {
    std::thread([&] {
      expect_parts(raised<UsageError>([&] { twin.barrier(); }), {"'comm/0'", "below MPI_THREAD_MULTIPLE"});
    }).join();
    twin.barrier();
    return;
  }
  auto const play = [&](Communicator& one, std::uint64_t stream) {
    Random same(stream);
    for (int round = 0; round < 20; ++round) {
      Exchange const exchange(same, size_, random_matrix(same, size_, sizes_of(one)));
      Buffers buffers(exchange, rank_);
      buffers.run(one);
      buffers.check();
    }
  };
  std::thread other([&] { play(twin, 5); });
  play(comm, 6);
  other.join();
}

TEST_F(MpiExchange, RefusalsAndMismatches) {
  if (size_ < 2) GTEST_SKIP() << "nobody to disagree with";
  auto comm = make();
  auto const n = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> displs(n);
  for (std::size_t i = 0; i < n; ++i) displs[i] = static_cast<std::int64_t>(i) * 50000;
  std::vector<std::int32_t> send(50000 * n);
  std::vector<std::int32_t> recv(send.size());
  for (int round = 0; round < 6; ++round) {
    for (std::int64_t const count : {4, 50000}) {
      std::vector<std::int64_t> counts(n, count);
      if (rank_ == 0) counts[1] = round % 2 == 0 ? -1 : count - 1;
      auto const call = [&] {
        comm.alltoallv(send.data(), counts, displs, i32, recv.data(), std::vector<std::int64_t>(n, count), displs, i32);
      };
      if (round % 2 == 0) {
        if (rank_ == 0) expect_parts(raised<UsageError>(call), {"send_counts[1] is -1"});
        if (rank_ != 0) expect_parts(raised<PeerError>(call), {"rank 0 refused", "send_counts[1] is -1"});
      } else if (rank_ < 2) {
        expect_parts(raised<MismatchError>(call),
                     {std::to_string(count) + " x i32", std::to_string(count - 1) + " x i32"});
      } else {
        call();
      }
      Random same(static_cast<std::uint64_t>(round));
      Exchange const exchange(same, size_, random_matrix(same, size_, sizes_of(comm)));
      Buffers buffers(exchange, rank_);
      buffers.run(comm);
      buffers.check("after");
    }
  }
}

TEST_F(MpiExchange, SharedBuffersGoByPlainCopies) {
  auto comm = make();
  std::int64_t const bytes = 100000;
  auto const n = static_cast<std::size_t>(size_);
  auto buffer = comm.allocate(static_cast<std::size_t>(bytes) * n);
  std::vector<std::int64_t> const counts(n, bytes);
  std::vector<std::int64_t> displs(n);
  for (std::size_t i = 0; i < n; ++i) displs[i] = static_cast<std::int64_t>(i) * bytes;
  std::vector<std::byte> recv(static_cast<std::size_t>(bytes) * n);
  for (int round = 0; round < 5; ++round) {
    for (std::size_t to = 0; to < n; ++to) {
      std::fill_n(buffer.data() + displs[to], bytes,
                  static_cast<std::byte>(round * 64 + rank_ * 8 + static_cast<int>(to)));
    }
    comm.alltoallv(buffer.data(), counts, displs, u8, recv.data(), counts, displs, u8);
    for (std::size_t from = 0; from < n; ++from) {
      auto const expected = static_cast<std::byte>(round * 64 + static_cast<int>(from) * 8 + rank_);
      ASSERT_TRUE(std::all_of(recv.begin() + displs[from], recv.begin() + displs[from] + bytes,
                              [&](std::byte b) { return b == expected; }));
    }
  }
  if (comm.options().path != Path::slots && comm.options().host_order == HostOrder::eager) {
    auto const all = nodes();
    auto const here = std::ranges::count(all, all[static_cast<std::size_t>(rank_)]);
    EXPECT_EQ(comm.stats().bytes_direct, 5 * static_cast<std::uint64_t>(bytes * (here - 1)));
  }
}

}  // namespace
}  // namespace davit::test
