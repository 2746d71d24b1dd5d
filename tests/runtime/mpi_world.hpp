// SPDX-License-Identifier: Apache-2.0
/// @file
/// A test whose ranks are the processes of an mpirun: the world, and random numbers that are alike on all ranks.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <vector>

#include "davit/communicator.hpp"
#include "davit/mpi.hpp"
#include "tests/support/random.hpp"

// What the macros of mpi.h expand to, not what is written in the tests.
#pragma GCC diagnostic ignored "-Wold-style-cast"

namespace davit::test {

class MpiWorld : public testing::Test {
 protected:
  MpiWorld() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    auto seed = process_seed();
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    set_process_seed(seed);
  }

  [[nodiscard]] static Communicator make() { return Communicator(davit::mpi(MPI_COMM_WORLD)); }
  [[nodiscard]] static int thread_level() {
    int level = 0;
    MPI_Query_thread(&level);
    return level;
  }

  /// Of each rank.
  [[nodiscard]] static std::vector<int> nodes() {
    auto const bootstrap = mpi(MPI_COMM_WORLD);
    return {bootstrap->nodes().begin(), bootstrap->nodes().end()};
  }
  [[nodiscard]] static bool on_several_nodes() {
    auto const all = nodes();
    return std::ranges::any_of(all, [](int node) { return node != 0; });
  }

  int rank_ = 0;
  int size_ = 0;
};

}  // namespace davit::test
