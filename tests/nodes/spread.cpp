// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prints what ranks got, as one number a case: "bits CASE HASH". suite.sh runs it over every spread of so many ranks
/// and compares. What must come is checked here too where it is said by few words: reduce_scatterv against the sum in
/// rank order, allgatherv and alltoallv against MPI. Exit codes: 0, 1 wrong, 3 refused.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "davit/mpi.hpp"
#include "tests/support/random.hpp"

#pragma GCC diagnostic ignored "-Wold-style-cast"  // what the macros of mpi.h expand to

namespace {

using davit::test::Random;
constexpr std::uint64_t kSeed = 20;

int rank = 0;
int size = 0;
bool wrong = false;

void expect(bool good, std::string const& what) {
  if (good) return;
  wrong = true;
  std::fprintf(stderr, "rank %d: WRONG: %s\n", rank, what.c_str());
}

std::uint64_t hash_of(void const* data, std::size_t bytes) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (auto const* at = static_cast<unsigned char const*>(data); bytes > 0; ++at, --bytes) {
    hash = (hash ^ *at) * 1099511628211ULL;
  }
  return hash;
}

/// Collective: all ranks' bytes as one number.
template <class T>
void tell(std::string const& name, std::vector<T> const& mine) {
  auto const hash = hash_of(mine.data(), mine.size() * sizeof(T));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size));
  MPI_Gather(&hash, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  std::printf("bits %s %016llx\n", name.c_str(),
              static_cast<unsigned long long>(hash_of(all.data(), all.size() * sizeof all[0])));
}

/// Numbers whose sum depends on the order: a few great ones that cancel, between small ones.
float element(Random& random) {
  float const great[] = {16777216.0F, -16777216.0F, 33554432.0F, -33554432.0F};
  if (random.chance(0.3)) return great[random.between(0, 3)];
  return static_cast<float>(random.between(-1000, 1000)) / 7.0F;
}

std::vector<float> elements(std::uint64_t stream, std::size_t count) {
  Random random(stream, kSeed);
  std::vector<float> result(count);
  for (auto& value : result) value = element(random);
  return result;
}

std::vector<std::int64_t> starts(std::vector<std::int64_t> const& counts) {
  std::vector<std::int64_t> result;
  for (std::int64_t at = 0; auto const count : counts) {
    result.push_back(at);
    at += count;
  }
  return result;
}

std::vector<int> narrow(std::vector<std::int64_t> const& numbers) { return {numbers.begin(), numbers.end()}; }

std::int64_t random_count(Random& random) {
  return random.chance(0.2) ? 0 : random.between(1, random.chance(0.3) ? 150000 : 500);
}

void dense(davit::Communicator& comm) {
  Random random(1, kSeed);
  auto const n = static_cast<std::size_t>(size);
  auto const me = static_cast<std::size_t>(rank);
  for (int round = 0; round < 6; ++round) {
    auto const name = [&](char const* what) { return std::string(what) + "." + std::to_string(round); };
    std::vector<std::vector<std::int64_t>> matrix(n, std::vector<std::int64_t>(n));
    for (auto& row : matrix) std::ranges::generate(row, [&] { return random_count(random); });
    std::vector<std::int64_t> received;
    for (auto const& row : matrix) received.push_back(row[me]);
    auto const& counts = matrix[me];
    auto const from = starts(counts), to = starts(received);
    auto const stream = static_cast<std::uint64_t>(1000 * (round + 1));
    auto const send = elements(stream + me, static_cast<std::size_t>(from.back() + counts.back()));
    std::vector<float> got(static_cast<std::size_t>(to.back() + received.back())), by_mpi(got.size());
    comm.alltoallv(send.data(), counts, from, got.data(), received, to);
    MPI_Alltoallv(send.data(), narrow(counts).data(), narrow(from).data(), MPI_FLOAT, by_mpi.data(),
                  narrow(received).data(), narrow(to).data(), MPI_FLOAT, MPI_COMM_WORLD);
    expect(got == by_mpi, name("alltoallv differs from MPI's"));
    tell(name("alltoallv"), got);

    auto const& shares = matrix[0];  // the same on all ranks
    auto const places = starts(shares);
    auto const total = static_cast<std::size_t>(places.back() + shares.back());
    auto const own = elements(stream + 100 + me, static_cast<std::size_t>(shares[me]));
    std::vector<float> all(total), all_by_mpi(total);
    comm.allgatherv(own.data(), shares[me], davit::f32, all.data(), shares, places, davit::f32);
    MPI_Allgatherv(own.data(), static_cast<int>(shares[me]), MPI_FLOAT, all_by_mpi.data(), narrow(shares).data(),
                   narrow(places).data(), MPI_FLOAT, MPI_COMM_WORLD);
    expect(all == all_by_mpi, name("allgatherv differs from MPI's"));
    tell(name("allgatherv"), all);

    std::vector<float> sum(static_cast<std::size_t>(shares[me])), naive(sum.size());
    comm.reduce_scatterv(elements(stream + 200 + me, total).data(), sum.data(), shares, davit::f32);
    for (std::size_t r = 0; r < n; ++r) {
      auto const part = elements(stream + 200 + r, total);
      for (std::size_t i = 0; i < naive.size(); ++i) {
        float const term = part[static_cast<std::size_t>(places[me]) + i];
        naive[i] = r == 0 ? term : naive[i] + term;
      }
    }
    expect(std::memcmp(sum.data(), naive.data(), sum.size() * sizeof(float)) == 0,
           name("reduce_scatterv is not the sum in rank order"));
    tell(name("reduce_scatterv"), sum);
  }
}

/// Experts double a row and add their number: what comes back differs by expert.
void moe(davit::Communicator& comm, int reduce_group, davit::Reduce reduce) {
  constexpr std::int64_t kExperts = 13, kTopK = 6, kHidden = 200, kMost = 300;
  davit::ExpertGroup group(comm, {.experts = kExperts,
                                  .top_k = kTopK,
                                  .hidden = kHidden,
                                  .max_tokens = kMost,
                                  .dtype = davit::f32,
                                  .reduce_group = reduce_group});
  std::vector<float> results;
  for (std::uint64_t round = 0; round < 3; ++round) {
    Random random(5000 + 100 * round + static_cast<std::uint64_t>(rank), kSeed);
    auto const tokens = static_cast<std::size_t>(random.between(0, kMost));
    std::vector<std::int32_t> ids(tokens * kTopK);
    for (auto& id : ids) id = static_cast<std::int32_t>(random.between(-1, kExperts - 1));
    std::vector<float> weights(ids.size()), x(tokens * kHidden), out(x.size(), -1.0F);
    for (auto& weight : weights) weight = static_cast<float>(random.between(1, 99)) / 50.0F;
    for (auto& value : x) value = element(random);
    auto routing = group.route(ids, weights);
    auto received = group.dispatch(routing, x.data());
    auto* const rows = reinterpret_cast<float*>(received.data());
    auto const counts = received.counts();
    for (std::size_t expert = 0; expert < counts.expert_counts.size(); ++expert) {
      auto* const first = rows + counts.expert_offsets[expert] * kHidden;
      auto const add = static_cast<float>(group.first_expert() + static_cast<std::int64_t>(expert));
      std::for_each(first, first + counts.expert_counts[expert] * kHidden, [&](float& v) { v = v * 2.0F + add; });
    }
    results.insert(results.end(), rows, rows + received.rows() * kHidden);
    davit::CombineOptions options;
    options.reduce = reduce;
    group.combine(routing, rows, out.data(), options);
    results.insert(results.end(), out.begin(), out.end());
  }
  tell(reduce == davit::Reduce::by_k ? "moe.by_k" : "moe.groups_of_" + std::to_string(reduce_group), results);
}

void play() {
  davit::Communicator comm(davit::mpi(MPI_COMM_WORLD));
  dense(comm);
  for (int group = 1; group <= size; ++group) {
    if (size % group == 0) moe(comm, group, davit::Reduce::grouped);
  }
  moe(comm, 1, davit::Reduce::by_k);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int status = 3;
  try {
    play();
    status = wrong ? 1 : 0;
  } catch (davit::Error const& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  MPI_Finalize();
  return status;
}
