// SPDX-License-Identifier: Apache-2.0
// davit_perf: davit's time beside a peer's. See --help.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string_view>

#include "davit/davit.hpp"
#include "davit/mpi.hpp"
#include "examples/davit_perf/measure.hpp"
#include "examples/davit_perf/operations.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/davit_perf/report.hpp"
#include "examples/support/world.hpp"

namespace {

using support::Exit;
using support::Told;
using support::World;

constexpr char const* program = "davit_perf";

std::uint64_t hash_of(int argc, char const* const* argv) {
  std::string all;
  for (int i = 1; i < argc; ++i) all.append(argv[i]).append(1, '\0');
  return std::hash<std::string>{}(all);
}

Exit run(World const& world, perf::Options const& options) {
  perf::Report report(world, options);
  davit::Options davit_options;
  davit_options.name = program;
  if (options.path) davit_options.path = *options.path;
  davit::Communicator comm(davit::mpi(world.comm()), davit_options);
  perf::Meter meter(world, options.batches);
  perf::Bench const bench{world, options, comm, meter, report};
  bool const ok = options.operation == perf::Operation::moe ? perf::run_moe(bench) : perf::run_exchange(bench);
  return ok ? Exit::ok : Exit::check_failed;
}

Exit guarded_run(World const& world, int argc, char const* const* argv) {
  try {
    auto const parsed = perf::parse(argc, argv);
    // Ranks may have been started with different arguments; a collective call of some of them would never end.
    if (!world.all_equal(hash_of(argc, argv))) {
      throw support::Failure(Exit::usage, "the ranks were started with different arguments", Told::by_root);
    }
    if (parsed.options) return run(world, *parsed.options);
    if (world.is_root()) std::fputs(parsed.text.c_str(), parsed.code == Exit::ok ? stdout : stderr);
    return parsed.code;
  } catch (support::Failure const& failure) {
    world.tell(program, failure.what(), failure.told());
    return failure.code();
  } catch (davit::UsageError const& error) {
    world.tell(program, error.what(), Told::by_itself);
    return Exit::usage;
  } catch (std::exception const& error) {
    world.tell(program, error.what(), Told::by_itself);
    return Exit::failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  // No higher thread level: MPI would pay for it with locks, and davit's blocking calls need none.
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    return static_cast<int>(Exit::failed);
  auto code = Exit::failed;
  try {
    World const world;
    code = world.finish(guarded_run(world, argc, argv));
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
  }
  MPI_Finalize();
  return static_cast<int>(code);
}
