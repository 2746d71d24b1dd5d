// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "examples/davit_perf/exchange.hpp"
#include "examples/davit_perf/operations.hpp"
#include "examples/support/sizes.hpp"

namespace perf {
namespace {

constexpr std::uint64_t check_rounds = 3;  // back to back, so that a call that returns too early meets the next one
constexpr int unset = 0xff;                // NaN where numbers are summed

/// Collective: both sides do the same rounds, and must end with the same output. Its first content is unset, and no
/// round's output is another's.
bool check(Bench const& bench, Exchange& exchange, ExchangeSide& davit, ExchangeSide& peer) {
  auto const first = bench.meter.take_rounds(check_rounds);
  for (auto* const side : {&davit, &peer}) {
    bench.device.fill(side->output(), side->output_bytes(), unset);
    bench.world.barrier();
    for (auto round = first; round < first + check_rounds; ++round) {
      exchange.change(round);
      side->run();
    }
    bench.device.finish();
  }
  return all_equal(bench, name_of(exchange.operation()), bench.device.read(davit.output(), davit.output_bytes()),
                   bench.device.read(peer.output(), peer.output_bytes()));
}

std::string format_moved(Moved const& call, std::int64_t payload) {
  auto const& moved = call.stats;
  auto const bytes = [](std::uint64_t count) { return support::format_size(static_cast<std::int64_t>(count)); };
  return "a call moved, all ranks together: up " + bytes(moved.bytes_up) + ", down " + bytes(moved.bytes_down) +
         ", direct " + bytes(moved.bytes_direct) + ", kept " + bytes(moved.bytes_kept) + "; payload to other ranks " +
         support::format_size(payload) + " = least of down + direct" + format_beside(call);
}

bool measure(Bench const& bench, std::string const& peer_name, std::int64_t bytes) {
  auto const& options = bench.options;
  bench.report.progress(std::string(name_of(options.operation)) + " " + support::format_size(bytes));
  Exchange exchange(options, bytes, bench.world, bench.device);
  auto const davit = bench.device.make_davit(exchange);
  auto const peer = bench.device.make_peer(peer_name, exchange);
  auto const step_of = [&exchange](ExchangeSide& side) -> Step {
    return {[&exchange, &side](std::uint64_t round) {
              exchange.change(round);
              side.run();
            },
            side.blocks()};
  };

  bool ok = !options.check || check(bench, exchange, *davit, *peer);
  auto const result = bench.meter.compare(step_of(*davit), step_of(*peer));
  if (options.check && !check(bench, exchange, *davit, *peer)) ok = false;

  auto const payload = bench.world.sum(exchange.bytes_to_others());
  auto const moved = moved_by(bench, [&] { davit->run(); });
  bench.report.add({.peer = peer_name,
                    .bytes = bytes,
                    .sent = payload / bench.world.size(),
                    .result = result,
                    .check = !options.check ? Check::off
                             : ok           ? Check::ok
                                            : Check::failed,
                    .crossed = crossings_of(bench, moved.stats),
                    .phase = {},
                    .tokens = 0});
  if (options.verbose) bench.report.note(format_moved(moved, payload));
  return ok;
}

}  // namespace

bool run_exchange(Bench const& bench) {
  auto const& options = bench.options;
  if (std::ranges::any_of(options.peers, uses_mpi)) require_mpi_counts(options, bench.world);
  bool ok = true;
  for (auto const& peer : options.peers) {
    bench.report.begin_table(peer, bench.device.describe(peer), bench.device.ceiling());
    for (auto bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
      if (!measure(bench, peer, bytes)) ok = false;
    }
    bench.report.end_table();
  }
  return ok;
}

}  // namespace perf
