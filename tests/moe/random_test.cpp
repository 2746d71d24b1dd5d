// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random batches against the reference, with ranks as threads: all settings, layouts, dtypes and sums, and slots so
/// small that rows span several chunks. DAVIT_TEST_SEED repeats a run.
#include <gtest/gtest.h>

#include "tests/moe/player.hpp"
#include "tests/moe/wishes.hpp"
#include "tests/support/ranks.hpp"

namespace {

using namespace davit;
using namespace davit::test;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kGroups = 20;
#else
constexpr int kGroups = 60;
#endif

/// What all ranks do to one group: batches, and the calls on each.
struct Script {
  struct Step {
    DispatchWish dispatch;
    CombineWish combine;
  };
  struct Part {
    Batch batch;
    bool wide_ids;
    std::vector<Step> steps;
  };
  ExpertGroupOptions options;
  std::vector<Part> parts;
};

Script random_script(Random& random, int ranks) {
  Script script{random_options(random, ranks), {}};
  for (auto batches = random.between(1, 4); batches > 0; --batches) {
    Script::Part part{random_batch(random, ranks, script.options), random.chance(0.5), {}};
    for (auto steps = random.between(1, 3); steps > 0; --steps) {
      auto const dispatch = random_dispatch(random);
      part.steps.push_back({dispatch, random_combine(random, dispatch)});
    }
    script.parts.push_back(std::move(part));
  }
  return script;
}

void play_random(HostOrder order) {
  Random random(static_cast<std::uint64_t>(order) + 100);
  for (int group_number = 0; group_number < kGroups; ++group_number) {
    auto const ranks = static_cast<int>(random.between(1, most_ranks()));
    Making making;
    making.options.host_order = order;
    making.options.slot_bytes = random.chance(0.8) ? 4096 : 65536;
    making.options.slots = static_cast<int>(random.between(1, 4));
    making.start = {static_cast<std::uint32_t>(-random.between(1, 12)),
                    static_cast<std::uint32_t>(-random.between(1, 40))};
    auto const script = random_script(random, ranks);
    run_ranks(ranks, making, [&](int rank, Communicator& comm) {
      ExpertGroup group(comm, script.options);
      for (auto const& part : script.parts) {
        Player const player(part.batch, rank, group);
        auto routing = player.route(part.wide_ids);
        for (auto const& step : part.steps) {
          player.dispatch(routing, step.dispatch);
          player.combine(routing, step.combine);
        }
      }
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MoeRandom, Eager) { play_random(HostOrder::eager); }
TEST(MoeRandom, StrictQueues) { play_random(HostOrder::queues); }
TEST(MoeRandom, StrictSubmission) { play_random(HostOrder::submission); }

}  // namespace
