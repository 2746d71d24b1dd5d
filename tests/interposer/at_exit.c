/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Finalize at exit, after a thread of its own has made all calls, on a part of the ranks,
 * empty batches among them: as torch.distributed does. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16 };
static int rank, size, bad;

static void finalize(void) { MPI_Finalize(); }

static void* work(void* unused) {
  int counts[MOST], displs[MOST], send[MOST], recv[MOST];
  MPI_Comm group;
  MPI_Request request;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &group);
  int ranks, me;
  MPI_Comm_size(group, &ranks);
  MPI_Comm_rank(group, &me);
  for (int round = 0; round < 3; ++round) {
    for (int r = 0; r < ranks; ++r) {
      counts[r] = round == 1 ? 0 : 1; /* an empty batch in between */
      displs[r] = r, send[r] = 100 * me + r + round, recv[r] = -7;
    }
    MPI_Alltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, group);
    for (int r = 0; r < ranks; ++r) bad |= recv[r] != (round == 1 ? -7 : 100 * r + me + round);
  }
  MPI_Ialltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, group, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  return unused;
}

int main(int argc, char** argv) {
  int level;
  pthread_t thread;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  if (atexit(finalize) != 0 || level < MPI_THREAD_SERIALIZED) return 1;
  MPI_Query_thread(&level);
  bad = level != MPI_THREAD_SERIALIZED; /* davit raises none */
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  pthread_create(&thread, NULL, work, NULL);
  pthread_join(thread, NULL);
  if (bad) printf("rank %d: FAILED\n", rank);
  return bad;
}
