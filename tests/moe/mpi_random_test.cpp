// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random batches against the reference, with ranks as processes. Rank 0 tells the others its seed.
#include <gtest/gtest.h>
#include <mpi.h>

#include "davit/mpi.hpp"
#include "tests/moe/player.hpp"
#include "tests/moe/wishes.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

TEST(MoeMpi, RandomBatches) {
  auto seed = process_seed();
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  SCOPED_TRACE("DAVIT_TEST_SEED=" + std::to_string(seed));
  Watchdog const watchdog(std::chrono::seconds(90));
  Random random(200, seed);
  for (int round = 0; round < 12 && !HasFailure(); ++round) {
    auto options = Making::patient();
    options.slot_bytes = random.chance(0.7) ? 4096 : 65536;
    options.slots = static_cast<int>(random.between(1, 4));
    Communicator comm(mpi(MPI_COMM_WORLD), options);
    ExpertGroup group(comm, random_options(random, comm.size()));
    for (int i = 0; i < 3; ++i) {
      auto asked = group.options();
      auto const batch = random_batch(random, comm.size(), asked);
      Player const player(batch, comm.rank(), group);
      auto routing = player.route(random.chance(0.5));
      for (int step = 0; step < 2; ++step) {
        auto const dispatch = random_dispatch(random);
        auto const combine = random_combine(random, dispatch);
        player.dispatch(routing, dispatch);
        player.combine(routing, combine);
      }
      auto const before = comm.stats();
      player.dispatch(routing);
      Crossings const rows{comm.stats().rows_up - before.rows_up, comm.stats().rows_down - before.rows_down};
      EXPECT_EQ(rows, dispatch_crossings(batch, comm.rank())) << batch.text();
    }
  }
}

}  // namespace
