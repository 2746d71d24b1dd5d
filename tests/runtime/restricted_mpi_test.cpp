// SPDX-License-Identifier: Apache-2.0
/// @file
/// Under mpirun, in processes that may not read each other's memory, as in many containers: large blocks go by slots,
/// memory from allocate() still by plain copies, and the direct way is refused where it is asked for.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "davit/error.hpp"
#include "tests/runtime/mpi_world.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

/// From here on process_vm_readv fails in this process, for good. @returns whether the kernel takes the filter.
bool forbid_reading() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const filter{static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

class Restricted : public MpiWorld {
 protected:
  void SetUp() override {
    static bool const forbidden = rank_ % 2 == 1 || forbid_reading();  // some of the ranks are enough
    int mine = forbidden ? 1 : 0;
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all == 0) GTEST_SKIP() << "*** NOT TESTED: the kernel takes no filter of system calls ***";
  }
};

TEST_F(Restricted, LargeBlocksGoBySlots) {
  auto comm = make();
  Random same(1);
  Exchange const exchange(same, size_, Matrix(static_cast<std::size_t>(size_ * size_), 300000));
  Buffers buffers(exchange, rank_);
  buffers.run(comm);
  buffers.check();
  auto const stats = comm.stats();
  EXPECT_EQ(stats.bytes_direct, 0U);
  EXPECT_EQ(stats.bytes_up, 300000U * static_cast<unsigned>(size_ - 1));
}

TEST_F(Restricted, SharedBuffersGoByPlainCopiesAtAnySize) {
  auto comm = make();
  constexpr std::int64_t bytes = 300000;
  auto const n = static_cast<std::size_t>(size_);
  auto buffer = comm.allocate(static_cast<std::size_t>(bytes) * n);
  std::vector<std::byte> const elsewhere(static_cast<std::size_t>(bytes) * n, std::byte{9});
  std::vector<std::byte> recv(elsewhere.size());
  std::vector<std::int64_t> const counts(n, bytes);
  std::vector<std::int64_t> displs(n);
  for (std::size_t i = 0; i < n; ++i) displs[i] = static_cast<std::int64_t>(i) * bytes;
  std::fill_n(buffer.data(), elsewhere.size(), static_cast<std::byte>(rank_ + 1));
  // Rank 0 sends from elsewhere, the others from what all map.
  auto const* const send = rank_ == 0 ? elsewhere.data() : buffer.data();
  comm.alltoallv(send, counts, displs, u8, recv.data(), counts, displs, u8);
  for (std::size_t from = 0; from < n; ++from) {
    auto const expected = from == 0 ? std::byte{9} : static_cast<std::byte>(from + 1);
    EXPECT_EQ(recv[static_cast<std::size_t>(displs[from])], expected);
    EXPECT_EQ(recv[static_cast<std::size_t>(displs[from] + bytes - 1)], expected);
  }
  auto const stats = comm.stats();
  auto const others = static_cast<std::uint64_t>(size_ - 1);
  auto const block = static_cast<std::uint64_t>(bytes);
  EXPECT_EQ(stats.bytes_direct, rank_ == 0 ? others * block : (others - 1) * block);
  EXPECT_EQ(stats.bytes_down, rank_ == 0 ? 0 : block);
  EXPECT_EQ(stats.bytes_up, rank_ == 0 ? others * block : 0);
}

TEST_F(Restricted, DirectPathIsRefusedAtCreation) {
  auto const bootstrap = davit::mpi(MPI_COMM_WORLD);
  Options options;
  options.path = Path::direct;
  expect_parts(raised<SystemError>([&] { Communicator const comm(bootstrap, options); }),
               {"path 'direct'", "cannot read each other's memory", "ptrace_scope"});
  Communicator comm(bootstrap);
  comm.barrier();
}

}  // namespace
}  // namespace davit::test
