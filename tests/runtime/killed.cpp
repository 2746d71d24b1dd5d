// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank of a job of four that is started by killed.sh: rank 2 is killed while all exchange. Each survivor must
/// learn who died, in what and when; it prints "survivor R: ok" or what is wrong. Arguments: blocking or nonblocking,
/// bytes from each rank to each, and what rank 2 does: "before" a call, or "within" one.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "davit/communicator.hpp"
#include "davit/error.hpp"
#include "davit/mpi.hpp"

namespace {

using namespace std::chrono_literals;
constexpr int kVictim = 2;

struct Task {
  bool nonblocking;
  std::size_t bytes;
  bool within;
};

void exchange(davit::Communicator& comm, Task const& task, std::vector<std::byte>& send, std::vector<std::byte>& recv) {
  std::vector<std::int64_t> const counts(4, static_cast<std::int64_t>(task.bytes));
  std::vector<std::int64_t> displs;
  for (std::int64_t peer = 0; peer < 4; ++peer) displs.push_back(peer * counts[0]);
  if (task.nonblocking) {
    comm.ialltoallv(send.data(), counts, displs, davit::u8, recv.data(), counts, displs, davit::u8).wait();
  } else {
    comm.alltoallv(send.data(), counts, displs, davit::u8, recv.data(), counts, displs, davit::u8);
  }
}

/// What is wrong with an error, nothing if it is as it must be.
std::string complaint(davit::Communicator& comm, int named, std::string const& text,
                      std::chrono::steady_clock::duration took) {
  if (named != kVictim) return "rank " + std::to_string(named) + " is named: " + text;
  if (took > 4s) return "it took more than 4 s: " + text;
  for (auto const& part : {std::string("rank 2"), std::string("alltoallv"), "call " + std::to_string(comm.calls())}) {
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

std::string play(davit::Communicator& comm, Task const& task) {
  std::vector<std::byte> send(4 * task.bytes, static_cast<std::byte>(comm.rank()));
  std::vector<std::byte> recv(send.size());
  std::thread killer;
  for (int call = 0;; ++call) {
    if (call == 20 && comm.rank() == kVictim) {
      if (!task.within) kill(getpid(), SIGKILL);
      killer = std::thread([] {
        std::this_thread::sleep_for(std::chrono::microseconds(getpid() % 17 * 700));
        kill(getpid(), SIGKILL);
      });
    }
    auto const start = std::chrono::steady_clock::now();
    auto const took = [&] { return std::chrono::steady_clock::now() - start; };
    try {
      exchange(comm, task, send, recv);
    } catch (davit::PeerError const& error) {
      return complaint(comm, error.rank(), error.what(), took());
    } catch (davit::TimeoutError const& error) {
      return complaint(comm, error.rank(), error.what(), took());
    }
    for (std::size_t from = 0; from < 4; ++from) {
      if (recv[from * task.bytes] != std::byte(from) || recv[(from + 1) * task.bytes - 1] != std::byte(from)) {
        return "wrong data from rank " + std::to_string(from) + " in call " + std::to_string(comm.calls());
      }
    }
    if (call == 100000) return "rank 2 lives";
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string wrong;
  try {
    if (argc != 4) throw davit::UsageError("three arguments, please");
    Task const task{std::string(argv[1]) == "nonblocking", std::stoul(argv[2]), std::string(argv[3]) == "within"};
    davit::Options options;
    options.timeout = 30s;        // so that only who looks after the dead is in time
    options.first_timeout = 60s;  // ranks start unevenly
    davit::Communicator comm(davit::mpi(MPI_COMM_WORLD), options);
    comm.prepare();
    wrong = play(comm, task);
  } catch (std::exception const& error) {
    wrong = std::string("threw ") + error.what();
  }
  std::printf("survivor %d: %s\n", rank, wrong.empty() ? "ok" : wrong.c_str());
  std::fflush(stdout);
  _exit(wrong.empty() ? 0 : 1);  // MPI_Finalize would wait for the dead
}
