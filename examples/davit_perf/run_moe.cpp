// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "examples/davit_perf/moe.hpp"
#include "examples/davit_perf/moe_check.hpp"
#include "examples/davit_perf/operations.hpp"
#include "examples/support/sizes.hpp"

namespace perf {
namespace {

/// What must cross at least, counted from the choices. All ranks together once summed.
struct Ideal {
  std::int64_t rows_up = 0;    ///< tokens that another rank needs: a row goes up once
  std::int64_t rows_down = 0;  ///< (token, other rank): a row comes down once for each rank that needs it
};

Ideal ideal_of(Bench const& bench, MoeProblem const& problem) {
  Ideal ideal;
  for (std::int64_t token = 0; token < problem.tokens(); ++token) {
    std::set<int> owners;
    for (auto const id : problem.ids_of(token)) owners.insert(problem.map().owner(id));
    owners.erase(problem.rank());
    ideal.rows_up += owners.empty() ? 0 : 1;
    ideal.rows_down += static_cast<std::int64_t>(owners.size());
  }
  return {bench.world.sum(ideal.rows_up), bench.world.sum(ideal.rows_down)};
}

struct Phase {
  char const* name;
  Step (*step)(MoeProblem& problem, MoeSide& side);
};

// route comes last of the parts, since it changes the choices that the others go by; total needs a fresh routing.
constexpr std::array phases{Phase{"dispatch",
                                  [](MoeProblem& problem, MoeSide& side) -> Step {
                                    return {[&](std::uint64_t round) {
                                              problem.change_x(round);
                                              side.dispatch();
                                            },
                                            side.blocks()};
                                  }},
                            Phase{"combine",
                                  [](MoeProblem& problem, MoeSide& side) -> Step {
                                    return {[&](std::uint64_t round) {
                                              problem.change_rows(side.received(), side.received_rows(), round);
                                              side.combine();
                                            },
                                            side.blocks()};
                                  }},
                            Phase{"total",
                                  [](MoeProblem& problem, MoeSide& side) -> Step {
                                    return {[&](std::uint64_t round) {
                                              problem.change_x(round);
                                              side.dispatch();
                                              side.combine();
                                            },
                                            side.blocks()};
                                  }},
                            Phase{"route", [](MoeProblem& problem, MoeSide& side) -> Step {
                                    return {[&](std::uint64_t round) {
                                              problem.change_choices(round);
                                              side.route();
                                            },
                                            true};
                                  }}};

std::int64_t bytes_of(std::string const& phase, Ideal const& ideal, MoeProblem const& problem) {
  if (phase == "route") {
    auto const choice = static_cast<std::int64_t>(sizeof(std::int32_t) + sizeof(float));
    return problem.tokens() * problem.top_k() * choice;
  }
  auto const one_way = ideal.rows_down * static_cast<std::int64_t>(problem.row_bytes()) / problem.ranks();
  return phase == "total" ? 2 * one_way : one_way;
}

std::string format_moved(char const* phase, Moved const& call, std::int64_t least_up, std::int64_t least_down) {
  auto const& moved = call.stats;
  auto const rows = [](std::uint64_t count) { return std::to_string(count); };
  auto const bytes = [](std::uint64_t count) { return support::format_size(static_cast<std::int64_t>(count)); };
  return std::string(phase) + " moved, all ranks together: rows up " + rows(moved.rows_up) + " (least " +
         std::to_string(least_up) + "), rows down " + rows(moved.rows_down) + " (least " + std::to_string(least_down) +
         "), slack " + rows(moved.rows_slack) + "; bytes up " + bytes(moved.bytes_up) + ", down " +
         bytes(moved.bytes_down) + ", direct " + bytes(moved.bytes_direct) + format_beside(call);
}

/// What one call of each phase moved.
struct MovedBy {
  Moved route;
  Moved dispatch;
  Moved combine;

  [[nodiscard]] double crossings(Bench const& bench, std::string const& phase) const {
    if (phase == "route") return 0;  // through the host
    double crossed = 0;
    if (phase != "combine") crossed += crossings_of(bench, dispatch.stats);
    if (phase != "dispatch") crossed += crossings_of(bench, combine.stats);
    return crossed;
  }
};

MovedBy look(Bench const& bench, MoeSide& davit) {
  MovedBy moved;
  moved.route = moved_by(bench, [&] { davit.route(); });
  moved.dispatch = moved_by(bench, [&] { davit.dispatch(); });
  moved.combine = moved_by(bench, [&] { davit.combine(); });
  return moved;
}

void note_moved(Bench const& bench, MovedBy const& moved, Ideal const& ideal) {
  bench.report.note("route published, all ranks together: " + std::to_string(moved.route.stats.bytes_ids) +
                    " bytes of ids and weights");
  bench.report.note(format_moved("dispatch", moved.dispatch, ideal.rows_up, ideal.rows_down));
  // A partial row has one reader, so as many go up as come down.
  bench.report.note(format_moved("combine", moved.combine, ideal.rows_down, ideal.rows_down));
}

/// Collective. @throws Failure (usage) if all ranks' rows could not be counted by int, as MPI does: every
/// recipe's route is made by MPI.
void require_mpi_rows(Bench const& bench) {
  auto const& options = bench.options;
  auto const most = std::numeric_limits<int>::max() / (static_cast<double>(options.top_k) * bench.world.size());
  auto const tokens = std::ranges::max(options.tokens);
  if (static_cast<double>(tokens) <= most) return;
  throw support::Failure(support::Exit::usage,
                         "--tokens " + std::to_string(tokens) + ": MPI counts rows by int: at most " +
                             std::to_string(static_cast<std::int64_t>(most)) + " with top_k " +
                             std::to_string(options.top_k) + " and " + std::to_string(bench.world.size()) + " ranks",
                         support::Told::by_root);
}

Sums sums_of(std::string const& peer) {
  if (peer == "mpi-expert") return Sums::other_steps;
  return peer == "nccl-dense" ? Sums::rounded_by_rank : Sums::same_steps;
}

bool measure(Bench const& bench, std::string const& peer_name, std::int64_t tokens) {
  auto const& options = bench.options;
  auto const progress = [&](std::string const& what) {
    bench.report.progress("moe " + std::to_string(tokens) + " tokens beside " + peer_name + ": " + what);
  };
  progress("set-up");
  MoeProblem problem(options, tokens, bench.world, bench.device);
  auto const davit = bench.device.make_davit(problem);
  auto const peer = bench.device.make_peer(peer_name, problem);
  auto const sums = sums_of(peer_name);

  if (options.check) progress("check");
  bool ok = !options.check || check_moe(bench, problem, *davit, *peer, sums);
  auto const ideal = ideal_of(bench, problem);
  std::array<Line, phases.size()> lines;
  auto const moved = look(bench, *davit);
  peer->route();
  davit->dispatch();
  peer->dispatch();
  bench.device.finish();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    auto const& [name, step] = phases.at(i);
    progress(name);
    auto const bytes = bytes_of(name, ideal, problem);
    lines.at(i) = {.peer = peer_name,
                   .bytes = bytes,
                   .sent = bytes,
                   .result = bench.meter.compare(step(problem, *davit), step(problem, *peer)),
                   .check = Check::off,
                   .crossed = moved.crossings(bench, name),
                   .phase = name,
                   .tokens = tokens};
  }
  if (options.check && !check_moe(bench, problem, *davit, *peer, sums)) ok = false;
  std::rotate(lines.begin(), lines.end() - 1, lines.end());  // route is what a user does first
  for (auto& line : lines) {
    if (options.check) line.check = ok ? Check::ok : Check::failed;
    bench.report.add(line);
  }
  if (options.verbose) note_moved(bench, moved, ideal);
  return ok;
}

}  // namespace

bool run_moe(Bench const& bench) {
  require_mpi_rows(bench);
  bool ok = true;
  for (auto const& peer : bench.options.peers) {
    bench.report.begin_table(peer, bench.device.describe(peer), bench.device.ceiling());
    for (auto const tokens : bench.options.tokens) {
      if (!measure(bench, peer, tokens)) ok = false;
    }
    bench.report.end_table();
  }
  return ok;
}

}  // namespace perf
