// SPDX-License-Identifier: Apache-2.0
// Row kernels, every variant of this machine: bytes read and written per second. Rows lie in random order in a megabyte
// ("cache") or in half a gigabyte ("memory"); results go to 128 KiB or 128 MiB.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "transports/host/kernels_table.hpp"

namespace {

using namespace davit;
using namespace davit::host;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

struct Place {
  char const* name;
  std::size_t source_bytes;
  std::size_t result_bytes;
};
constexpr Place sum_places[] = {{"cache", mib, 128 * kib}, {"memory", 512 * mib, 128 * mib}};
constexpr Place move_places[] = {{"cache", 256 * kib, 128 * mib}, {"memory", 512 * mib, 128 * mib}};

std::byte* source() {
  static std::vector<std::byte> bytes(512 * mib, std::byte{0x3c});
  return bytes.data();
}

std::byte* result() {
  static std::vector<std::byte> bytes(128 * mib, std::byte{0x3c});
  return bytes.data();
}

std::vector<std::int64_t> shuffled(std::size_t count) {
  std::vector<std::int64_t> order(count);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64{1});
  return order;
}

struct Sum {
  char const* name;
  RowSum types;
  std::size_t terms;
  std::size_t group;  // terms of each
};
constexpr Sum sums[] = {
    {"bf16_weighted_4", {bf16, f32, bf16, true, false}, 4, 4},
    {"bf16_2_groups_of_2", {bf16, bf16, bf16, false, true}, 4, 2},
    {"bf16_2", {bf16, f32, bf16, false, false}, 2, 2},
    {"bf16_weighted_8", {bf16, f32, bf16, true, false}, 8, 8},
    {"bf16_weighted_4_to_f32", {bf16, f32, f32, true, false}, 4, 4},
    {"f16_weighted_4", {f16, f32, f16, true, false}, 4, 4},
    {"f32_weighted_4", {f32, f32, f32, true, false}, 4, 4},
};

void sum_rows(benchmark::State& state, KernelTable const& kernels, Sum const& sum, Place const& place,
              std::size_t columns) {
  std::size_t const in_bytes = columns * size_of(sum.types.in);
  std::size_t const out_bytes = columns * size_of(sum.types.out);
  std::size_t const results = place.result_bytes / out_bytes;
  std::vector<Term> terms;
  for (std::int64_t const row : shuffled(place.source_bytes / in_bytes)) {
    bool const closes = (terms.size() % sum.terms + 1) % sum.group == 0;
    terms.push_back({source() + static_cast<std::size_t>(row) * in_bytes, 1.5F, closes ? 1U : 0U});
  }
  std::size_t const sums_there = terms.size() / sum.terms;
  std::size_t at = 0;
  for (auto _ : state) {
    kernels.sum_row(sum.types, &terms[at % sums_there * sum.terms], sum.terms, nullptr,
                    result() + at % results * out_bytes, columns);
    benchmark::ClobberMemory();
    ++at;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(sum.terms * in_bytes + out_bytes));
}

void move_rows(benchmark::State& state, KernelTable const& kernels, Stores stores, Place const& place,
               std::size_t row_bytes) {
  auto const from = shuffled(place.source_bytes / row_bytes);
  auto const to = shuffled(place.result_bytes / row_bytes);
  std::vector<RowMove> moves;
  for (std::size_t i = 0; i < to.size(); ++i) moves.push_back({from[i % from.size()], to[i]});
  for (auto _ : state) {
    kernels.move_rows(result(), source(), row_bytes, moves.data(), moves.size(), stores);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(moves.size() * row_bytes));
}

void register_variant(KernelTable const& kernels) {
  std::string const variant = kernels.name;
  for (Sum const& sum : sums) {
    for (Place const& place : sum_places) {
      for (std::size_t const columns : {2048U, 7168U}) {
        auto const name = "sum_row/" + variant + "/" + sum.name + "/" + place.name + "/" + std::to_string(columns);
        benchmark::RegisterBenchmark(name.c_str(), sum_rows, std::cref(kernels), std::cref(sum), std::cref(place),
                                     columns);
      }
    }
  }
  for (Stores const stores : {Stores::cached, Stores::streaming}) {
    for (Place const& place : move_places) {
      for (std::size_t const row_bytes : {64U, 192U, 1024U, 4096U, 14336U}) {
        auto const name = "move_rows/" + variant + (stores == Stores::cached ? "/cached/" : "/streaming/") +
                          place.name + "/" + std::to_string(row_bytes);
        benchmark::RegisterBenchmark(name.c_str(), move_rows, std::cref(kernels), stores, std::cref(place), row_bytes);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (Variant const variant : {Variant::avx512, Variant::avx2, Variant::baseline}) {
    if (KernelTable const* const kernels = table(variant)) register_variant(*kernels);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
