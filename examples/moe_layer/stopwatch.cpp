// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/stopwatch.hpp"

namespace moe {
namespace {

using Field = std::uint64_t davit::Stats::*;

constexpr std::array<Field, 11> fields{
    &davit::Stats::calls,     &davit::Stats::rows_up,     &davit::Stats::rows_down,    &davit::Stats::rows_slack,
    &davit::Stats::bytes_up,  &davit::Stats::bytes_down,  &davit::Stats::bytes_direct, &davit::Stats::bytes_kept,
    &davit::Stats::bytes_ids, &davit::Stats::bytes_cards, &davit::Stats::chunks_up};

}  // namespace

void Stopwatch::start() {
  comm_.barrier();  // not MPI's: this one notices a rank that has died
  before_ = comm_.stats();
  begin_ = std::chrono::steady_clock::now();
}

void Stopwatch::done(Phase phase) {
  settle_();
  std::chrono::duration<double> const spent = std::chrono::steady_clock::now() - begin_;
  auto const number = static_cast<std::size_t>(phase);
  seconds_.at(number) = spent.count();
  moved_.at(number) = comm_.stats() - before_;
  start();
}

davit::Stats operator-(davit::Stats const& after, davit::Stats const& before) noexcept {
  davit::Stats difference;
  for (auto const field : fields) difference.*field = after.*field - before.*field;
  return difference;
}

davit::Stats& operator+=(davit::Stats& sum, davit::Stats const& more) noexcept {
  for (auto const field : fields) sum.*field += more.*field;
  return sum;
}

davit::Stats sum_of(support::World const& world, davit::Stats const& mine) {
  davit::Stats sum;
  for (auto const field : fields) {
    sum.*field = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine.*field)));
  }
  return sum;
}

}  // namespace moe
