/* SPDX-License-Identifier: Apache-2.0 */
/* The first call on a communicator ends after DAVIT_TIMEOUT where a rank has not come; so does that rank's, and every
 * later one. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { MOST = 16 };

int main(int argc, char** argv) {
  int rank, size, bad = 0, class, send[MOST] = {0}, recv[MOST];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank == 1) sleep(3);
  for (int call = 0; call < 2; ++call) {
    double const start = MPI_Wtime();
    int const code = MPI_Alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    bad |= class != MPI_ERR_OTHER || MPI_Wtime() - start > 2.5;
  }
  if (bad) printf("rank %d: FAILED\n", rank);
  MPI_Finalize();
  return bad;
}
