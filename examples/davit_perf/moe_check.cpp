// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/moe_check.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "transports/host/kernels.hpp"

namespace perf {
namespace {

using davit::host::load_element;

constexpr std::uint64_t check_rounds = 3;
constexpr int unset = 0xff;  // NaN in every dtype

float scale_of(std::int64_t expert) { return static_cast<float>(1 << (expert % 3)); }

double unit_round_off(davit::Dtype dtype) {
  if (dtype == davit::bf16) return std::ldexp(1.0, -8);
  return std::ldexp(1.0, dtype == davit::f16 ? -11 : -24);
}

/// Below this numbers of the dtype lie evenly, and roundings are absolute.
double least_normal(davit::Dtype dtype) { return std::ldexp(1.0, dtype == davit::f16 ? -14 : -126); }

std::string text_of(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", number);
  return text.data();
}

std::size_t at(MoeProblem const& problem, std::int64_t row) {
  return static_cast<std::size_t>(row) * problem.row_bytes();
}

std::vector<std::byte> read_received(MoeProblem const& problem, MoeSide const& side) {
  return problem.device().read(side.received(), at(problem, side.received_rows()));
}

/// Collective. In the order by_expert, whatever the sides' own orders are.
bool same_rows(Bench const& bench, MoeProblem const& problem, MoeSide const& davit, MoeSide const& peer) {
  std::string difference;
  if (davit.expert_counts() != peer.expert_counts()) {
    difference = "the experts' row counts differ";
  } else {
    auto const of_davit = read_received(problem, davit);
    auto const of_peer = read_received(problem, peer);
    auto const rows_of_davit = davit.by_expert();
    auto const rows_of_peer = peer.by_expert();
    for (std::size_t i = 0; i < rows_of_davit.size() && difference.empty(); ++i) {
      if (std::memcmp(of_davit.data() + at(problem, rows_of_davit[i]), of_peer.data() + at(problem, rows_of_peer[i]),
                      problem.row_bytes()) != 0) {
        difference = "received row " + std::to_string(i) + " of " + std::to_string(rows_of_davit.size()) + " differs";
      }
    }
  }
  if (!difference.empty())
    bench.world.tell("davit_perf", "check FAILED: dispatch: " + difference, support::Told::by_itself);
  return bench.world.all(difference.empty());
}

void apply_experts(MoeProblem const& problem, MoeSide const& side) {
  auto received = read_received(problem, side);
  auto const rows = side.by_expert();
  auto const element = size_of(problem.dtype());
  std::size_t row = 0;
  auto expert = problem.map().first(problem.rank());
  for (auto const count : side.expert_counts()) {
    auto const scale = scale_of(expert++);
    for (std::int64_t i = 0; i < count; ++i, ++row) {
      auto* const data = received.data() + at(problem, rows[row]);
      for (std::size_t byte = 0; byte < problem.row_bytes(); byte += element) {
        davit::host::store_element(problem.dtype(), scale * load_element(problem.dtype(), data + byte), data + byte);
      }
    }
  }
  problem.device().write(side.received(), received);
}

/// Collective.
bool near_reference(Bench const& bench, MoeProblem const& problem, MoeSide const& side, char const* name,
                    int roundings) {
  auto const dtype = problem.dtype();
  auto const element = size_of(dtype);
  // The f32 additions inside come on top: K + R of them at most, and one product.
  auto const inner = static_cast<double>(problem.top_k() + problem.ranks() + 1) * std::ldexp(1.0, -24);
  auto const tolerance = roundings * unit_round_off(dtype) + inner;
  auto const input = problem.device().read(problem.x(), side.output_bytes());
  auto const output = problem.device().read(side.output(), side.output_bytes());
  std::string difference;
  for (std::int64_t token = 0; token < problem.tokens() && difference.empty(); ++token) {
    double weight = 0;
    double size = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(problem.top_k()); ++k) {
      auto const scaled = static_cast<double>(problem.weights_of(token)[k]) * scale_of(problem.ids_of(token)[k]);
      weight += scaled;
      size += std::abs(scaled);
    }
    for (std::size_t byte = 0; byte < problem.row_bytes(); byte += element) {
      auto const x = static_cast<double>(load_element(dtype, input.data() + at(problem, token) + byte));
      auto const seen = static_cast<double>(load_element(dtype, output.data() + at(problem, token) + byte));
      auto const allowed = tolerance * std::max(std::abs(x) * size, least_normal(dtype) * (problem.ranks() + 2));
      if (std::abs(seen - weight * x) <= allowed) continue;  // false for NaN
      difference = "token " + std::to_string(token) + ", element " + std::to_string(byte / element) + " is " +
                   text_of(seen) + ", must be " + text_of(weight * x) + " +- " + text_of(allowed);
      break;
    }
  }
  if (!difference.empty()) {
    bench.world.tell("davit_perf", std::string("check FAILED: combine of ") + name + ": " + difference,
                     support::Told::by_itself);
  }
  return bench.world.all(difference.empty());
}

}  // namespace

bool check_moe(Bench const& bench, MoeProblem& problem, MoeSide& davit, MoeSide& peer, Sums sums) {
  auto& device = bench.device;
  auto const first = bench.meter.take_rounds(check_rounds);
  problem.change_choices(first);
  for (auto* const side : {&davit, &peer}) {
    side->route();
    device.fill(side->output(), side->output_bytes(), unset);
    device.fill(side->received(), at(problem, side->received_rows()), unset);
    bench.world.barrier();
    // Back to back, so that a call that returns too early meets the next one.
    for (auto round = first; round < first + check_rounds; ++round) {
      problem.change_x(round);
      side->dispatch();
      if (round + 1 < first + check_rounds) side->combine();
    }
    device.finish();
  }
  bool ok = same_rows(bench, problem, davit, peer);
  for (auto* const side : {&davit, &peer}) {
    device.fill(side->output(), side->output_bytes(), unset);
    apply_experts(problem, *side);
    side->combine();
    device.finish();
  }
  constexpr int grouped = 3;  // by an owner of experts, a group, the token's owner
  if (!near_reference(bench, problem, davit, "davit", grouped)) ok = false;
  auto const of_peer = sums == Sums::rounded_by_rank ? grouped + problem.ranks() : grouped;
  if (!near_reference(bench, problem, peer, "the peer", of_peer)) ok = false;
  if (sums == Sums::same_steps && davit.adds_ranks_at_once() &&
      !all_equal(bench, "combine", device.read(davit.output(), davit.output_bytes()),
                 device.read(peer.output(), peer.output_bytes()))) {
    ok = false;
  }
  return ok;
}

}  // namespace perf
