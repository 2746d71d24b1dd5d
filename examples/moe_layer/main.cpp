// SPDX-License-Identifier: Apache-2.0
// moe_layer: a text through a Mixture-of-Experts layer spread over the ranks. See --help, and layer_davit.cpp for
// davit.
#include <cstdio>
#include <string>

#include "examples/moe_layer/job.hpp"
#include "examples/moe_layer/report.hpp"
#include "examples/support/program.hpp"

namespace {

using support::Exit;

Exit run(support::World const& world, int argc, char const* const* argv) {
  auto const parsed = moe::parse(argc, argv);
  if (!parsed.options) {
    if (world.is_root()) std::fputs((parsed.text + "\n").c_str(), parsed.code == Exit::ok ? stdout : stderr);
    return parsed.code;
  }
  auto const group = parsed.options->reduce_group;
  if (group > world.size()) {
    throw support::Failure(Exit::usage,
                           "--reduce-group: '" + std::to_string(group) + "', must be at most the number of ranks, " +
                               std::to_string(world.size()),
                           support::Told::by_root);
  }
  if (world.is_root()) moe::print_head(*parsed.options, world.size());
  auto const outcome = moe::run_job(world, *parsed.options);
  if (world.is_root()) moe::print_outcome(*parsed.options, world.size(), outcome);
  return outcome.ok() ? Exit::ok : Exit::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("moe_layer", argc, argv,
                              [&](support::World const& world) { return run(world, argc, argv); });
}
