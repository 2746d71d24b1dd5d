// SPDX-License-Identifier: Apache-2.0
// davit_perf limits: the ceilings of the links, size by size.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "davit/version.hpp"
#include "examples/davit_perf/cuda/links.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/json_file.hpp"
#include "examples/support/sizes.hpp"
#include "transports/cuda/cuda_backend.hpp"

namespace perf {
namespace {

/// Over the ranks.
struct Spread {
  double mean = 0;
  double least = 0;
};

Spread spread_of(support::World const& world, double mine) { return {world.mean(mine), -world.max(-mine)}; }

}  // namespace

void run_limits(support::World const& world, Options const& options) {
  JsonFile json(world, options.json);
  int const device = davit::cuda::backend().current_device_if_chosen();
  Links const links(world, device, static_cast<std::size_t>(options.max_bytes));
  if (world.is_root()) {
    std::printf("davit_perf limits: %s, %d rank%s at once; GB/s a direction, mean and least of the ranks\n",
                davit::cuda::backend().facts(device).name.c_str(), world.size(), world.size() == 1 ? "" : "s");
    std::printf("%9s %15s %15s %15s\n", "bytes", "up", "down", "both, each");
  }
  for (auto bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
    auto const mine = links.rates(static_cast<std::size_t>(bytes));
    auto const up = spread_of(world, mine.up);
    auto const down = spread_of(world, mine.down);
    auto const both = spread_of(world, mine.both);
    if (!world.is_root()) continue;
    std::printf("%9s %8.2f %6.2f %8.2f %6.2f %8.2f %6.2f\n", support::format_size(bytes).c_str(), up.mean, up.least,
                down.mean, down.least, both.mean, both.least);
    std::fflush(stdout);
    json.add({{"op", name_of(options.operation)},
              {"device", name_of(options.device)},
              {"ranks", world.size()},
              {"bytes", bytes},
              {"up_gbps", up.mean},
              {"down_gbps", down.mean},
              {"both_gbps", both.mean},
              {"up_least_gbps", up.least},
              {"down_least_gbps", down.least},
              {"both_least_gbps", both.least},
              {"version", davit::version()}});
  }
}

}  // namespace perf
