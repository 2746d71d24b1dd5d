// SPDX-License-Identifier: Apache-2.0
/// @file
/// A13, as one rank of a job of four that is started by killed.sh: rank 2 kills itself before its fifth dispatch. Each
/// survivor must learn who died, in what and when; it prints "survivor R: ok" or what is wrong. A program of its own,
/// since what is left of MPI then is good for nothing but to go.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "davit/error.hpp"
#include "davit/expert_group.hpp"
#include "davit/mpi.hpp"

namespace {

using namespace std::chrono_literals;
constexpr int kVictim = 2;

/// What is wrong, nothing if all is well.
std::string play(davit::Communicator& comm) {
  davit::ExpertGroup group(comm, {.experts = 8, .top_k = 2, .hidden = 64, .max_tokens = 8, .dtype = davit::f32});
  std::vector<std::int32_t> ids;
  std::vector<float> const weights(16, 0.5F);
  for (int t = 0; t < 8; ++t) ids.insert(ids.end(), {(t + comm.rank()) % 8, (t + comm.rank() + 3) % 8});
  auto routing = group.route(std::span<std::int32_t const>(ids), weights);
  std::vector<float> const x(8 * 64, 1.0F);
  for (int i = 0; i < 4; ++i) static_cast<void>(group.dispatch(routing, x.data()));
  if (comm.rank() == kVictim) kill(getpid(), SIGKILL);

  auto const fifth = comm.calls() + 1;
  auto const start = std::chrono::steady_clock::now();
  std::string text;
  try {
    static_cast<void>(group.dispatch(routing, x.data()));
    return "the fifth dispatch came to an end";
  } catch (davit::PeerError const& error) {
    if (error.rank() != kVictim) return "rank " + std::to_string(error.rank()) + " is named: " + error.what();
    text = error.what();
  } catch (davit::TimeoutError const& error) {
    if (error.rank() != kVictim) return "rank " + std::to_string(error.rank()) + " is named: " + error.what();
    text = error.what();
  }
  if (std::chrono::steady_clock::now() - start > 4s) return "it took more than 4 s: " + text;
  for (auto const& part : {std::string("rank 2"), std::string("dispatch"), "call " + std::to_string(fifth)}) {
    if (text.find(part) == std::string::npos) return "'" + part + "' is not in: " + text;
  }
  if (comm.usable()) return "the communicator says that it is usable";
  try {
    comm.barrier();
    return "a barrier came to an end";
  } catch (davit::Error const& error) {
    if (error.what() != text) return "a later call says something else: " + std::string(error.what());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string wrong;
  try {
    davit::Options options;
    options.timeout = 3s;
    options.first_timeout = 60s;  // ranks start unevenly
    davit::Communicator comm(davit::mpi(MPI_COMM_WORLD), options);
    wrong = play(comm);
  } catch (std::exception const& error) {
    wrong = std::string("threw ") + error.what();
  }
  std::printf("survivor %d: %s\n", rank, wrong.empty() ? "ok" : wrong.c_str());
  std::fflush(stdout);
  _exit(wrong.empty() ? 0 : 1);  // MPI_Finalize would wait for the dead
}
