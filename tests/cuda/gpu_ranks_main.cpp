// SPDX-License-Identifier: Apache-2.0
/// @file
/// main() that plays tests written for ranks as threads by the processes of an mpirun, with their buffers on real GPUs:
/// threads of one process share a context, and would lock each other. A test that needs more ranks than there are is
/// skipped. Without a GPU the program ends with 77, which ctest shows as skipped.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "davit/mpi.hpp"
#include "tests/cuda/test_device.hpp"
#include "tests/support/random.hpp"
#include "tests/support/ranks.hpp"

// What the macros of mpi.h expand to, not what is written here.
#pragma GCC diagnostic ignored "-Wold-style-cast"

namespace {

using namespace davit::test;

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

std::vector<std::exception_ptr> play_own(int ranks, Play const& play) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  if (ranks > most_ranks()) {
    [] { GTEST_SKIP() << "needs more ranks"; }();
    return thrown;
  }
  int const rank = rank_in_world();
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &part);
  if (part != MPI_COMM_NULL) {
    enter_rank(rank);
    try {
      play(rank, davit::mpi(part));
    } catch (...) {
      thrown[static_cast<std::size_t>(rank)] = std::current_exception();
    }
    MPI_Comm_free(&part);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return thrown;
}

class RankListener final : public testing::EmptyTestEventListener {
  void OnTestStart(testing::TestInfo const& info) override { test_ = info.name(); }
  void OnTestPartResult(testing::TestPartResult const& part) override {
    if (!part.failed()) return;
    std::fprintf(stderr, "[ rank %d ] %s failed at %s:%d\n%s\n", rank_in_world(), test_.c_str(),
                 part.file_name() != nullptr ? part.file_name() : "?", part.line_number(), part.summary());
  }
  std::string test_;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  testing::InitGoogleTest(&argc, argv);
  int worst = 77;
  try {
    if (cuda_device().backend().device_count() > 0) {
      int size = 0;
      MPI_Comm_size(MPI_COMM_WORLD, &size);
      auto seed = process_seed();
      MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
      set_process_seed(seed);
      set_test_device(cuda_device());
      set_stage(play_own, size);
      auto& listeners = testing::UnitTest::GetInstance()->listeners();
      if (rank_in_world() != 0) {
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new RankListener);  // owned by GoogleTest
      }
      int const mine = RUN_ALL_TESTS();
      MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      if (rank_in_world() == 0 && mine == 0 && worst != 0) std::printf("[  FAILED  ] on another rank\n");
    } else if (rank_in_world() == 0) {
      std::fprintf(stderr, "SKIPPED: NO GPU HERE, nothing was tested\n");
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    worst = 1;
  }
  MPI_Finalize();
  return worst;
}
