// SPDX-License-Identifier: Apache-2.0
/// @file
/// main() of tests under mpirun. Rank 0 prints as usual, the other ranks print only what fails, with their rank.
/// Listeners never communicate: a rank that fails may be the only one that does. A failed rank, and one whose peers are
/// stuck, must not hang the job: after a failure a rank has DAVIT_TEST_GRACE seconds (default 60) to reach the end,
/// then it ends the job. DAVIT_TEST_THREAD_LEVEL=single|funneled|serialized|multiple asks MPI for another level than
/// multiple.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

int thread_level() {
  char const* const set = std::getenv("DAVIT_TEST_THREAD_LEVEL");
  std::string const level = set != nullptr ? set : "multiple";
  if (level == "single") return MPI_THREAD_SINGLE;
  if (level == "funneled") return MPI_THREAD_FUNNELED;
  if (level == "serialized") return MPI_THREAD_SERIALIZED;
  if (level == "multiple") return MPI_THREAD_MULTIPLE;
  std::fprintf(stderr, "DAVIT_TEST_THREAD_LEVEL=%s is not single, funneled, serialized or multiple\n", level.c_str());
  std::exit(2);
}

class RankListener : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(int rank) : rank_{rank} {}

  void OnTestStart(testing::TestInfo const& info) override {
    test_ = std::string{info.test_suite_name()} + "." + info.name();
  }

  // GoogleTest holds its lock here: asking it for the current test would wait for ever.
  void OnTestPartResult(testing::TestPartResult const& part) override {
    if (!part.failed()) return;
    if (rank_ != 0) {  // rank 0 has the default printer
      std::fprintf(stderr, "[ rank %d ] %s failed at %s:%d\n%s\n", rank_, test_.c_str(),
                   part.file_name() != nullptr ? part.file_name() : "?", part.line_number(), part.summary());
    }
    if (!armed_.exchange(true)) std::thread{[this] { end_job_later(); }}.detach();
  }

 private:
  // MPI_Abort would need MPI_THREAD_MULTIPLE; a rank that just leaves makes mpirun end the others.
  void end_job_later() const {
    char const* const grace = std::getenv("DAVIT_TEST_GRACE");
    std::this_thread::sleep_for(std::chrono::seconds{grace != nullptr ? std::atoi(grace) : 60});
    std::fprintf(stderr, "[ rank %d ] failed, and the job does not end: ending it\n", rank_);
    _exit(1);
  }

  int rank_;
  std::string test_ = "outside of a test";
  std::atomic<bool> armed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, thread_level(), &provided);
  testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankListener{rank});  // owned by GoogleTest

  int const mine = RUN_ALL_TESTS();
  int worst = 0;
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && mine == 0 && worst != 0) std::printf("[  FAILED  ] on another rank\n");
  MPI_Finalize();
  return worst;
}
