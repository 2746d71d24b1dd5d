// SPDX-License-Identifier: Apache-2.0
/// @file
/// Under mpirun: what is left of a communicator in the system, large offsets, deadlines from the environment.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "davit/error.hpp"
#include "tests/runtime/mpi_world.hpp"
#include "tests/support/exchange.hpp"
#include "tests/support/files.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

/// DAVIT_TEST_CYCLES, else 1000.
int many() {
  char const* const set = std::getenv("DAVIT_TEST_CYCLES");
  return set == nullptr ? 1000 : std::atoi(set);
}

class MpiSystem : public MpiWorld {
 protected:
  void exchange(Communicator& comm, std::uint64_t stream) const {
    Random same(stream);
    Exchange const all(same, size_, random_matrix(same, size_, {}));
    Buffers buffers(all, rank_);
    buffers.run(comm);
    buffers.check();
  }
};

TEST_F(MpiSystem, NoNameIsLeft) {
  auto comm = make();
  exchange(comm, 1);
  auto buffer = comm.allocate(10000);
  auto part = comm.split(0);
  exchange(part, 2);
  EXPECT_TRUE(segment_names(getpid()).empty()) << "while it lives";
  comm = Communicator();
  part = Communicator();
  EXPECT_TRUE(segment_names(getpid()).empty()) << "afterwards";
}

TEST_F(MpiSystem, ManyCommunicatorsLeaveNothingBehind) {
  auto const bootstrap = davit::mpi(MPI_COMM_WORLD);
  Options options;
  if (options.slot_bytes == 0) options.slot_bytes = 4096;
  auto const cycles = [&](int count) {
    for (int i = 0; i < count && !HasFailure(); ++i) {
      Communicator comm(bootstrap, options);
      exchange(comm, static_cast<std::uint64_t>(i));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  };
  cycles(50);
  auto const descriptors = open_descriptors();
  auto const mappings = shared_mappings();
  auto const resident = resident_bytes();
  cycles(size_ <= 4 ? many() : many() / 5);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(shared_mappings(), mappings);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes(), resident + (std::size_t{4} << 20));
#endif
  static_cast<void>(resident);
}

TEST_F(MpiSystem, ManyBootstrapsLeaveNothingBehind) {
  auto const cycles = [&](int count) {
    for (int i = 0; i < count && !HasFailure(); ++i) {
      auto comm = make();
      exchange(comm, static_cast<std::uint64_t>(i));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  };
  cycles(50);
  auto const descriptors = open_descriptors();
  auto const mappings = shared_mappings();
  auto const resident = resident_bytes();
  cycles(many() / 5);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(shared_mappings(), mappings);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes(), resident + (std::size_t{16} << 20)) << "MPI keeps some";
#endif
  static_cast<void>(resident);
}

/// Address space of which only touched pages cost memory.
class Virtual {
 public:
  explicit Virtual(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Virtual() { munmap(data_, bytes_); }
  Virtual(Virtual const&) = delete;
  Virtual& operator=(Virtual const&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

  /// Lays the same 16 MiB under every part of it.
  void fold() {
    constexpr std::size_t window = std::size_t{16} << 20;
    int const file = memfd_create("fold", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, window), 0);
    for (std::size_t at = 0; at < bytes_; at += window) {
      ASSERT_NE(
          mmap(data() + at, std::min(window, bytes_ - at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0),
          MAP_FAILED);
    }
    close(file);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST_F(MpiSystem, OffsetsBeyondTwoToThe31) {
  auto comm = make();
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 12345;
  for (auto const dtype : {u8, f64}) {
    auto const width = static_cast<std::int64_t>(size_of(dtype));
    // Bytes far away by many elements, and by fewer elements that are wide.
    auto const first = dtype == u8 ? kFar : kFar / width + 1;
    for (std::int64_t const bytes : {800, 100000}) {
      Virtual const send(static_cast<std::size_t>(2 * kFar + 16 * 200000));
      Virtual const recv(static_cast<std::size_t>(2 * kFar + 16 * 200000));
      ASSERT_NE(send.data(), MAP_FAILED);
      ASSERT_NE(recv.data(), MAP_FAILED);
      auto const n = static_cast<std::size_t>(size_);
      std::vector<std::int64_t> const counts(n, bytes / width);
      std::vector<std::int64_t> displs(n);
      for (std::size_t peer = 0; peer < n; ++peer) {
        displs[peer] = (peer % 2 == 0 ? first : 2 * first) + static_cast<std::int64_t>(peer) * (bytes / width + 3);
        std::memset(send.data() + displs[peer] * width, 1 + rank_ * 16 + static_cast<int>(peer),
                    static_cast<std::size_t>(bytes));
      }
      comm.alltoallv(send.data(), counts, displs, dtype, recv.data(), counts, displs, dtype);
      for (std::size_t peer = 0; peer < n; ++peer) {
        auto const* const block = recv.data() + displs[peer] * width;
        for (std::int64_t i = 0; i < bytes; ++i) {
          ASSERT_EQ(block[i], static_cast<std::byte>(1 + static_cast<int>(peer) * 16 + rank_))
              << name_of(dtype) << ", byte " << i;
        }
        ASSERT_EQ(block[-1], std::byte{0});
        ASSERT_EQ(block[bytes], std::byte{0});
      }
    }
  }
}

TEST_F(MpiSystem, CountsBeyondTwoToThe31) {
  if (size_ != 2) GTEST_SKIP() << "for two ranks";
  auto comm = make();
  constexpr std::int64_t kMany = (std::int64_t{1} << 31) + 4097;
  Virtual send(kMany);
  Virtual recv(kMany);
  send.fold();
  recv.fold();
  std::memset(send.data(), 0x31, std::size_t{16} << 20);
  std::vector<std::int64_t> const none(2, 0);
  std::vector<std::int64_t> const to_one{0, kMany};
  std::vector<std::int64_t> const from_zero{kMany, 0};
  comm.alltoallv(send.data(), rank_ == 0 ? to_one : none, none, u8, recv.data(), rank_ == 1 ? from_zero : none, none,
                 u8);
  auto const stats = comm.stats();
  EXPECT_EQ(stats.bytes_up + stats.bytes_down + stats.bytes_direct,
            rank_ == 1 || stats.bytes_up > 0 ? static_cast<std::uint64_t>(kMany) : 0U);
  if (rank_ == 1) {
    EXPECT_EQ(recv.data()[0], std::byte{0x31});
    EXPECT_EQ(recv.data()[kMany - 1], std::byte{0x31});
    EXPECT_EQ(recv.data()[(16 << 20) - 1], std::byte{0x31});
  }
  exchange(comm, 9);
}

TEST_F(MpiSystem, DeadlineOfTheEnvironmentIsHonoured) {
  if (std::getenv("DAVIT_TIMEOUT") == nullptr) GTEST_SKIP() << "DAVIT_TIMEOUT is not set";
  if (size_ < 2) GTEST_SKIP() << "nobody to wait for";
  auto comm = make();
  auto const deadline = comm.options().timeout;
  EXPECT_EQ(deadline.count(), std::atoi(std::getenv("DAVIT_TIMEOUT")) * 1000);
  MPI_Barrier(MPI_COMM_WORLD);
  comm.barrier();
  if (rank_ == size_ - 1) {
    std::this_thread::sleep_for(2 * deadline);
    EXPECT_FALSE(raised<PeerError>([&] {
                   comm.barrier();
                   comm.barrier();
                 }).empty());
  } else {
    auto const start = std::chrono::steady_clock::now();
    expect_parts(raised<TimeoutError>([&] { comm.barrier(); }),
                 {"barrier", "rank " + std::to_string(size_ - 1), std::to_string(deadline.count()) + " ms", "call 2"});
    auto const took = std::chrono::steady_clock::now() - start;
    EXPECT_GE(took, deadline);
    EXPECT_LT(took, deadline + std::chrono::seconds(1));
  }
  EXPECT_FALSE(comm.usable());
  // MPI is as good as before, and so is a new communicator.
  MPI_Barrier(MPI_COMM_WORLD);
  auto again = make();
  exchange(again, 3);
}

}  // namespace
}  // namespace davit::test
