// SPDX-License-Identifier: Apache-2.0
#include "examples/support/world.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

namespace support {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds patience_of_failed{10};  // davit has told the other ranks, or they will never come
constexpr std::chrono::seconds patience_of_done{120};

// Usage outranks failure: where one rank refuses an option, the others only report that it did.
constexpr std::array by_weight{Exit::ok, Exit::check_failed, Exit::failed, Exit::usage};

}  // namespace

void check(int mpi_result, char const* call) {
  if (mpi_result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(mpi_result, text.data(), &length);
  throw Failure(Exit::failed, std::string(call) + ": " + text.data());
}

World::World() {
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &end_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(end_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

World::~World() {
  MPI_Comm_free(&end_);
  MPI_Comm_free(&comm_);
}

void World::barrier() const { check(MPI_Barrier(comm_), "MPI_Barrier"); }

double World::max(double mine) const {
  double all = 0;
  check(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, comm_), "MPI_Allreduce");
  return all;
}

double World::mean(double mine) const {
  double all = 0;
  check(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comm_), "MPI_Allreduce");
  return all / size_;
}

std::int64_t World::sum(std::int64_t mine) const {
  std::int64_t all = 0;
  check(MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, comm_), "MPI_Allreduce");
  return all;
}

bool World::all(bool mine) const { return sum(mine ? 0 : 1) == 0; }

bool World::all_equal(std::uint64_t mine) const {
  std::array<std::uint64_t, 2> const ends{mine, ~mine};
  std::array<std::uint64_t, 2> least{};
  check(MPI_Allreduce(ends.data(), least.data(), 2, MPI_UINT64_T, MPI_MIN, comm_), "MPI_Allreduce");
  return least[0] == ~least[1];
}

void World::tell(std::string_view program, std::string_view text, Told told) const {
  auto const length = static_cast<int>(text.size());
  auto const name_length = static_cast<int>(program.size());
  if (told == Told::by_itself && size_ > 1) {
    std::fprintf(stderr, "%.*s: rank %d: %.*s\n", name_length, program.data(), rank_, length, text.data());
  } else if (told == Told::by_itself || is_root()) {
    std::fprintf(stderr, "%.*s: %.*s\n", name_length, program.data(), length, text.data());
  }
}

Exit World::finish(Exit mine) const {
  // Where the answer never comes MPI goes on owning both, so they outlive this call; the program ends there anyhow.
  static int weight = 0;
  static int heaviest = 0;
  weight = static_cast<int>(std::ranges::find(by_weight, mine) - by_weight.begin());
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0;
  auto const deadline = Clock::now() + (mine == Exit::failed ? patience_of_failed : patience_of_done);
  if (MPI_Iallreduce(&weight, &heaviest, 1, MPI_INT, MPI_MAX, end_, &request) == MPI_SUCCESS) {
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (done == 0) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(mine == Exit::ok ? Exit::failed : mine));
  return by_weight.at(static_cast<std::size_t>(heaviest));
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string line(text.data());
  return line.substr(0, line.find_first_of(",\n"));
}

}  // namespace support
