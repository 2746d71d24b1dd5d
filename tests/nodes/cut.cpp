// SPDX-License-Identifier: Apache-2.0
/// @file
/// cut FOLDER link|kill: a job whose last rank takes its node's link down, or kills itself, while all exchange. Every
/// rank that lives must raise within the deadline, name who is lost (a node beyond the link, or the rank), and exit
/// with 3; it writes "ok ..." or what is wrong into FOLDER/RANK, since mpirun hears of nobody beyond a link that is
/// down. cut.sh starts and judges it.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "davit/davit.hpp"
#include "davit/mpi.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kDeadline = 3s;

/// Whether the text has the words and then no further digit.
bool says(std::string const& text, std::string const& words) {
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    if (at + words.size() == text.size() || std::isdigit(static_cast<unsigned char>(text[at + words.size()])) == 0) {
      return true;
    }
  }
  return false;
}

/// Whether an error names who is lost: the killed rank, or a node beyond the link.
bool names_the_lost(std::vector<int> const& nodes, int rank, bool link, std::string const& text) {
  auto const last = std::to_string(nodes.size() - 1);
  if (!link) return says(text, "rank " + last) || says(text, ", " + last);
  auto const mine = nodes[static_cast<std::size_t>(rank)];
  for (auto const node : nodes) {
    bool const is_lost = (node == nodes.back()) != (mine == nodes.back());
    if (is_lost && says(text, "of node " + std::to_string(node))) return true;
  }
  return false;
}

/// What is wrong with an error; nothing if it is as it must be.
std::string complaint(davit::Communicator& comm, std::vector<int> const& nodes, bool link, std::string const& text) {
  if (!names_the_lost(nodes, comm.rank(), link, text)) return "does not name who is lost";
  if (comm.usable()) return "the communicator says that it is usable";
  try {
    comm.barrier();
    return "a barrier came to an end";
  } catch (davit::Error const& error) {
    if (error.what() != text) return "a later call says something else: " + std::string(error.what());
  }
  return {};
}

std::string play(int rank, bool link) {
  auto const bootstrap = davit::mpi(MPI_COMM_WORLD);
  std::vector<int> const nodes(bootstrap->nodes().begin(), bootstrap->nodes().end());
  davit::Options options;
  options.timeout = kDeadline;
  options.first_timeout = 60s;  // ranks start unevenly
  davit::Communicator comm(bootstrap, options);
  auto const n = static_cast<std::size_t>(comm.size());
  std::int64_t const bytes = 200000;
  std::vector<std::int64_t> const counts(n, bytes);
  std::vector<std::int64_t> displs;
  for (std::size_t peer = 0; peer < n; ++peer) displs.push_back(static_cast<std::int64_t>(peer) * bytes);
  std::vector<std::byte> send(n * static_cast<std::size_t>(bytes), std::byte(rank)), recv(send.size());
  for (int call = 0; call < 1000000; ++call) {
    if (call == 50 && rank == comm.size() - 1) {
      std::thread([link] {
        std::this_thread::sleep_for(std::chrono::microseconds(getpid() % 17 * 700));
        if (!link) kill(getpid(), SIGKILL);
        if (std::system("ip link set eth0 down") != 0) std::fprintf(stderr, "the link cannot be taken down\n");
      }).detach();
    }
    auto const start = Clock::now();
    try {
      comm.alltoallv(send.data(), counts, displs, davit::u8, recv.data(), counts, displs, davit::u8);
    } catch (davit::Error const& error) {
      std::string const text = error.what();
      auto const took = Clock::now() - start;
      auto wrong = complaint(comm, nodes, link, text);
      if (wrong.empty() && took > kDeadline + 2s) wrong = "it took more than the deadline and 2 s";
      return (wrong.empty() ? "ok" : wrong) + ", after " +
             std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) + " ms: " + text;
    }
    for (std::size_t from = 0; from < n; ++from) {
      if (recv[from * static_cast<std::size_t>(bytes)] != std::byte(from)) return "wrong data";
    }
  }
  return "nothing was cut";
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 3) return 2;
  std::string said;
  try {
    said = play(rank, std::string(argv[2]) == "link");
  } catch (std::exception const& error) {
    said = std::string("threw ") + error.what();
  }
  std::ofstream(std::string(argv[1]) + "/" + std::to_string(rank)) << said << '\n' << std::flush;
  _exit(said.starts_with("ok") ? 3 : 1);  // MPI_Finalize would wait for the lost
}
