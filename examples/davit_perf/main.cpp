// SPDX-License-Identifier: Apache-2.0
// davit_perf: davit's time beside a peer's. See --help.
#include <cstdio>

#include "davit/davit.hpp"
#include "davit/mpi.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/measure.hpp"
#include "examples/davit_perf/operations.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/davit_perf/report.hpp"
#include "examples/support/program.hpp"

namespace {

using support::Exit;
using support::World;

Exit measure(World const& world, perf::Options const& options) {
  perf::Report report(world, options);
  davit::Options davit_options;
  davit_options.name = "davit_perf";
  if (options.path) davit_options.path = *options.path;
  davit::Communicator comm(davit::mpi(world.comm()), davit_options);
  bool const on_host = options.device == perf::Where::host;
  auto const device = on_host ? perf::make_host_device(world, comm) : perf::make_cuda_device(world, comm, options);
  if (options.operation == perf::Operation::limits) {
    perf::run_limits(world, options);
    return Exit::ok;
  }
  perf::Meter meter(world, *device, options.batches);
  perf::Bench const bench{world, options, comm, *device, meter, report};
  bool const ok = options.operation == perf::Operation::moe ? perf::run_moe(bench) : perf::run_exchange(bench);
  return ok ? Exit::ok : Exit::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("davit_perf", argc, argv, [&](World const& world) {
    auto const parsed = perf::parse(argc, argv);
    if (parsed.options) return measure(world, *parsed.options);
    if (world.is_root()) std::fputs(parsed.text.c_str(), parsed.code == Exit::ok ? stdout : stderr);
    return parsed.code;
  });
}
