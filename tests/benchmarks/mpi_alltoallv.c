/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_alltoallv: microseconds a call of MPI_Alltoallv, bytes to each peer from 1 B to 4 MiB: the median of 5 runs, of
 * the slowest rank. It knows nothing of davit: run it with libdavit_mpi.so preloaded, and without. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, MOST = 4 << 20 };

static int less(void const* a, void const* b) {
  double const x = *(double const*)a, y = *(double const*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char* send = malloc((size_t)size * MOST);
  char* recv = malloc((size_t)size * MOST);
  int* counts = malloc(sizeof(int) * (size_t)size);
  int* displs = malloc(sizeof(int) * (size_t)size);
  memset(send, rank, (size_t)size * MOST);
  memset(recv, 0, (size_t)size * MOST);
  for (int bytes = 1; bytes <= MOST; bytes *= 4) {
    int const calls = bytes < (64 << 10) ? 2000 : bytes < (1 << 20) ? 400 : 60;
    double runs[RUNS];
    for (int r = 0; r < size; ++r) counts[r] = bytes, displs[r] = r * bytes;
    for (int run = -1; run < RUNS; ++run) { /* the first warms up */
      MPI_Barrier(MPI_COMM_WORLD);
      double mine = MPI_Wtime();
      for (int i = 0; i < calls; ++i)
        MPI_Alltoallv(send, counts, displs, MPI_CHAR, recv, counts, displs, MPI_CHAR, MPI_COMM_WORLD);
      mine = (MPI_Wtime() - mine) / calls * 1e6;
      double slowest;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (run >= 0) runs[run] = slowest;
    }
    qsort(runs, RUNS, sizeof *runs, less);
    if (rank == 0) printf("%8d %10.2f\n", bytes, runs[RUNS / 2]);
  }
  free(send);
  free(recv);
  free(counts);
  free(displs);
  MPI_Finalize();
  return 0;
}
