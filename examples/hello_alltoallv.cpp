// SPDX-License-Identifier: Apache-2.0
// The same exchange twice: by MPI_Alltoallv, and by davit. Rank r sends r + i numbers to rank i.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "davit/davit.hpp"
#include "davit/mpi.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int wrong = 0;
  try {
    davit::Communicator comm{davit::mpi(MPI_COMM_WORLD)};
    int const rank = comm.rank();
    std::vector<int> counts, displs;  // the matrix is symmetric, so they serve both sides
    int total = 0;
    for (int peer = 0; peer < comm.size(); ++peer) {
      counts.push_back(rank + peer);
      displs.push_back(total);
      total += counts.back();
    }
    std::vector<float> const send(static_cast<std::size_t>(total), static_cast<float>(rank));
    std::vector<float> by_mpi(send.size()), by_davit(send.size());
    MPI_Alltoallv(send.data(), counts.data(), displs.data(), MPI_FLOAT, by_mpi.data(), counts.data(), displs.data(),
                  MPI_FLOAT, MPI_COMM_WORLD);

    std::vector<std::int64_t> const c(counts.begin(), counts.end()), d(displs.begin(), displs.end());
    comm.alltoallv(send.data(), c, d, by_davit.data(), c, d);

    wrong = by_davit == by_mpi ? 0 : 1;
    std::printf("rank %d of %d: %d numbers, davit and MPI %s\n", rank, comm.size(), total, wrong ? "DIFFER" : "agree");
  } catch (davit::Error const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    wrong = 3;
  }
  MPI_Finalize();
  return wrong;
}
