// SPDX-License-Identifier: Apache-2.0
/// @file
/// Programs that are legal in MPI and wait in MPI and in davit at once. Large messages go without the kernel's help
/// here (see CMakeLists.txt), so that they need progress at both ends.
#include "tests/runtime/mpi_world.hpp"
#include "tests/support/exchange.hpp"

namespace davit::test {
namespace {

constexpr int kLarge = 64 << 20;

class MpiProgress : public MpiWorld {
 protected:
  [[nodiscard]] int next() const { return (rank_ + 1) % size_; }
  [[nodiscard]] int previous() const { return (rank_ + size_ - 1) % size_; }
  /// Every rank sends to every rank, by slots and by the direct way.
  void exchange(Communicator& comm, std::uint64_t bytes = 100000) const {
    Random same(1);
    Exchange const all(same, size_, Matrix(static_cast<std::size_t>(size_ * size_), bytes));
    Buffers buffers(all, rank_);
    buffers.run(comm);
    buffers.check();
  }
  void SetUp() override {
    if (size_ < 2) GTEST_SKIP() << "nobody to wait for";
    if (size_ > 4) GTEST_SKIP() << "as with four";
  }
};

TEST_F(MpiProgress, PendingSendBeforeAnExchange) {
  auto comm = make();
  comm.prepare();
  std::vector<std::byte> const large(kLarge, static_cast<std::byte>(rank_ + 1));
  std::vector<std::byte> received(kLarge);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(large.data(), kLarge, MPI_BYTE, next(), 7, MPI_COMM_WORLD, &request);
  exchange(comm);
  MPI_Recv(received.data(), kLarge, MPI_BYTE, previous(), 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT_TRUE(received == std::vector<std::byte>(kLarge, static_cast<std::byte>(previous() + 1)));
}

TEST_F(MpiProgress, PeerStuckInASendThatOnlyThisRankCanProgress) {
  auto comm = make();
  comm.prepare();
  std::vector<std::byte> large(kLarge, static_cast<std::byte>(rank_ + 1));
  for (int giver = 0; giver < 2; ++giver) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank_ == 1 - giver) MPI_Irecv(large.data(), kLarge, MPI_BYTE, giver, 8, MPI_COMM_WORLD, &request);
    if (rank_ == giver) MPI_Send(large.data(), kLarge, MPI_BYTE, 1 - giver, 8, MPI_COMM_WORLD);
    comm.barrier();
    exchange(comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

TEST_F(MpiProgress, OpenRequestWhileWaitingInMpi) {
  if (on_several_nodes() && thread_level() < MPI_THREAD_MULTIPLE) GTEST_SKIP() << "nobody may progress it then";
  auto comm = make();
  comm.prepare();
  Random same(2);
  // Many times what the slots hold, so that it cannot end without this rank.
  auto const use = memory_use(size_, comm.options());
  auto const bytes = std::min<std::uint64_t>(use.slot_bytes * static_cast<std::uint64_t>(use.slots) * 6, 4 << 20);
  Exchange const all(same, size_, Matrix(static_cast<std::size_t>(size_ * size_), bytes));
  for (int round = 0; round < 4; ++round) {
    Buffers buffers(all, rank_);
    auto request = buffers.post(comm);
    bool const barrier_first = rank_ % 2 == round % 2;
    if (barrier_first) MPI_Barrier(MPI_COMM_WORLD);
    request.wait();
    buffers.check();
    if (!barrier_first) MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_F(MpiProgress, MpiAndDavitInTurn) {
  auto comm = make();
  for (int round = 0; round < 100; ++round) {
    int mine = rank_ + round;
    int sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    ASSERT_EQ(sum, size_ * (size_ - 1) / 2 + size_ * round);
    exchange(comm, 64);
  }
}

}  // namespace
}  // namespace davit::test
