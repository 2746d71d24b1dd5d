/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that each call on a communicator of their own, the first calls at once; and a rank that comes late. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 4, CALLS = 200, MOST = 16 };
static MPI_Comm comms[THREADS];
static int rank, size, bad[THREADS];

static void* play(void* argument) {
  int const me = *(int*)argument;
  int counts[MOST], displs[MOST], send[MOST], recv[MOST];
  if (rank == 1) usleep((unsigned)(THREADS - me) * 1000);
  for (int call = 0; call < CALLS; ++call) {
    for (int r = 0; r < size; ++r) {
      counts[r] = 1;
      displs[r] = r;
      send[r] = (rank * size + r) * THREADS * CALLS + me * CALLS + call;
      recv[r] = -1;
    }
    MPI_Alltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, comms[me]);
    for (int r = 0; r < size; ++r) {
      if (recv[r] != (r * size + rank) * THREADS * CALLS + me * CALLS + call) bad[me] = 1;
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  int level, result = 0, numbers[THREADS];
  pthread_t threads[THREADS];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  if (level < MPI_THREAD_MULTIPLE) return 77;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < THREADS; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  for (int i = 0; i < THREADS; ++i) {
    numbers[i] = i;
    pthread_create(&threads[i], NULL, play, &numbers[i]);
  }
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    result |= bad[i];
    if (i % 2) MPI_Comm_free(&comms[i]); /* the others are left to MPI_Finalize */
  }
  if (result) printf("rank %d: wrong data\n", rank);
  MPI_Finalize();
  return result;
}
