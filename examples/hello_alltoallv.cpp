// SPDX-License-Identifier: Apache-2.0
// The same exchange twice, by MPI_Alltoallv and by davit: rank r sends r + i numbers to rank i.
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "davit/davit.hpp"
#include "davit/mpi.hpp"

static bool exchange() {
  davit::Communicator comm{davit::mpi(MPI_COMM_WORLD)};
  std::vector<int> counts, displs(1, 0);  // what goes to a rank is as long as what comes from it
  for (int peer = 0; peer < comm.size(); ++peer) {
    counts.push_back(comm.rank() + peer);
    displs.push_back(displs.back() + counts.back());
  }
  int const total = displs.back();
  displs.pop_back();
  std::vector<float> const send(static_cast<std::size_t>(total), static_cast<float>(comm.rank()));
  std::vector<float> by_mpi(send.size()), by_davit(send.size());

  MPI_Alltoallv(send.data(), counts.data(), displs.data(), MPI_FLOAT,  //
                by_mpi.data(), counts.data(), displs.data(), MPI_FLOAT, MPI_COMM_WORLD);

  std::vector<std::int64_t> const c(counts.begin(), counts.end()), d(displs.begin(), displs.end());
  comm.alltoallv(send.data(), c, d, by_davit.data(), c, d);

  std::printf("rank %d of %d: %d numbers, %s\n", comm.rank(), comm.size(), total,
              by_davit == by_mpi ? "davit and MPI agree" : "davit and MPI DIFFER");
  return by_davit == by_mpi;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 3;
  try {
    status = exchange() ? 0 : 1;
  } catch (davit::Error const& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  MPI_Finalize();
  return status;
}
