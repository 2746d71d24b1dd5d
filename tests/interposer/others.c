/* SPDX-License-Identifier: Apache-2.0 */
/* others [taken]: MPI_Allgatherv, MPI_Reduce_scatter, MPI_Neighbor_alltoallv, and forms with large counts. With `taken`
 * davit must have the first three, which the error of ranks that disagree proves. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16, ROOM = 4096 };
static int rank, size, bad;

static void expect(int good, char const* what) {
  if (good) return;
  printf("rank %d: FAILED: %s\n", rank, what);
  bad = 1;
}
static int class_of(int code) {
  int class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  return class;
}

static void gather(void) {
  int counts[MOST], displs[MOST], send[MOST], recv[ROOM];
  MPI_Datatype spread;
  MPI_Type_create_resized(MPI_INT, 0, 2 * (MPI_Aint)sizeof(int), &spread);
  MPI_Type_commit(&spread);
  for (int r = 0; r < size; ++r) counts[r] = r, displs[r] = 20 * (size - 1 - r) + 1; /* rank 0 brings nothing */
  for (int i = 0; i < rank; ++i) send[i] = 100 * rank + i;
  for (int gaps = 0; gaps < 2; ++gaps) {
    for (int i = 0; i < ROOM; ++i) recv[i] = -7;
    MPI_Allgatherv(send, rank, MPI_INT, recv, counts, displs, gaps ? spread : MPI_INT, MPI_COMM_WORLD);
    int const step = gaps ? 2 : 1;
    for (int r = 0; r < size; ++r) {
      expect(recv[step * (displs[r] - 1)] == -7, "allgatherv, gap");
      for (int i = 0; i < r; ++i) expect(recv[step * (displs[r] + i)] == 100 * r + i, "allgatherv");
      if (gaps && r > 0) expect(recv[2 * displs[r] + 1] == -7, "allgatherv, a type with gaps");
    }
  }
  for (int i = 0; i < ROOM; ++i) recv[i] = -7;
  for (int i = 0; i < rank; ++i) recv[displs[rank] + i] = 200 * rank + i;
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, recv, counts, displs, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < r; ++i) expect(recv[displs[r] + i] == 200 * r + i, "allgatherv in place");
  }
  MPI_Type_free(&spread);
}

static void reduce(void) {
  int counts[MOST], whole[ROOM], got[MOST], total = 0;
  float values[ROOM], sums[MOST];
  for (int r = 0; r < size; ++r) counts[r] = (r + 1) % 3, total += counts[r]; /* some ranks get nothing */
  for (int i = 0; i < total; ++i) values[i] = (float)(i + rank), whole[i] = i + rank;
  int first = 0;
  for (int r = 0; r < rank; ++r) first += counts[r];
  int const ranks = size * (size - 1) / 2;
  MPI_Reduce_scatter(values, sums, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < counts[rank]; ++i) expect(sums[i] == (float)(size * (first + i) + ranks), "reduce_scatter");
  MPI_Reduce_scatter(whole, got, counts, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  for (int i = 0; i < counts[rank]; ++i) expect(got[i] == first + i + size - 1, "reduce_scatter by MPI");
  MPI_Reduce_scatter(MPI_IN_PLACE, values, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < counts[rank]; ++i) expect(values[i] == (float)(size * (first + i) + ranks), "in place");
}

/* A ring by a graph of one direction; a line, whose ends have nobody; a ring where two ranks meet twice. */
static void neighbours(void) {
  MPI_Comm comm;
  int counts[2] = {2, 2}, displs[2] = {0, 2}, send[4], recv[4], whole = size, open = 0, closed = 1;
  int const left = (rank + size - 1) % size, right = (rank + 1) % size;
  int const weights[2] = {1, 1};
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, weights, 1, &right, weights, MPI_INFO_NULL, 0, &comm);
  for (int i = 0; i < 4; ++i) send[i] = 10 * rank + i, recv[i] = -7;
  MPI_Neighbor_alltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, comm);
  for (int i = 0; i < 2; ++i) expect(recv[i] == 10 * left + i, "neighbours in a graph");
  MPI_Comm_free(&comm);
  for (int periodic = 0; periodic < (size > 2 ? 2 : 1); ++periodic) {
    MPI_Cart_create(MPI_COMM_WORLD, 1, &whole, periodic ? &closed : &open, 0, &comm);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 4; ++i) send[i] = 10 * rank + i + round, recv[i] = -7;
      MPI_Neighbor_alltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, comm);
      for (int i = 0; i < 2; ++i) {
        expect(recv[i] == (periodic || rank > 0 ? 10 * left + 2 + i + round : -7), "neighbour below");
        expect(recv[2 + i] == (periodic || rank < size - 1 ? 10 * right + i + round : -7), "neighbour above");
      }
    }
    MPI_Comm_free(&comm);
  }
  int peers[2] = {right, right}, from[2] = {left, left};
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, weights, 2, peers, weights, MPI_INFO_NULL, 0, &comm);
  for (int i = 0; i < 4; ++i) recv[i] = -7;
  MPI_Neighbor_alltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, comm);
  for (int i = 0; i < 4; ++i) expect(recv[i] == send[i] - 10 * rank + 10 * left, "two edges, left to MPI");
  MPI_Comm_free(&comm);
}

#ifdef LARGE_COUNT
static void large(void) {
  MPI_Count counts[MOST];
  MPI_Aint displs[MOST];
  MPI_Request requests[4];
  int send[ROOM], recv[6][ROOM];
  for (int r = 0; r < size; ++r) {
    counts[r] = 2, displs[r] = 2 * (size - 1 - r);
    for (int i = 0; i < 2; ++i) send[displs[r] + i] = 100 * rank + 10 * r + i;
  }
  MPI_Alltoallv_c(send, counts, displs, MPI_INT, recv[0], counts, displs, MPI_INT, MPI_COMM_WORLD);
  MPI_Ialltoallv_c(send, counts, displs, MPI_INT, recv[1], counts, displs, MPI_INT, MPI_COMM_WORLD, &requests[0]);
  MPI_Alltoallv_init_c(send, counts, displs, MPI_INT, recv[2], counts, displs, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &requests[1]);
  MPI_Alltoall_c(send, 2, MPI_INT, recv[3], 2, MPI_INT, MPI_COMM_WORLD);
  MPI_Ialltoall_c(send, 2, MPI_INT, recv[4], 2, MPI_INT, MPI_COMM_WORLD, &requests[2]);
  MPI_Alltoall_init_c(send, 2, MPI_INT, recv[5], 2, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[3]);
  MPI_Start(&requests[1]);
  MPI_Start(&requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  for (int form = 0; form < 6; ++form) {
    for (int r = 0; r < size; ++r) {
      for (int i = 0; i < 2; ++i) {
        /* the uniform forms send block r to rank r, and block r holds what was meant for the one opposite */
        int const meant = form < 3 ? rank : size - 1 - rank;
        int const at = form < 3 ? 2 * (size - 1 - r) : 2 * r;
        expect(recv[form][at + i] == 100 * r + 10 * meant + i, "large counts");
      }
    }
  }
  MPI_Request_free(&requests[1]);
  MPI_Request_free(&requests[3]);
}
#endif

/* Rank 0 brings more than rank 1 expects: the MPI libraries do not tell both. */
static void wrong(void) {
  int counts[MOST] = {0}, displs[MOST] = {0}, data[8] = {0}, got[8];
  float values[ROOM] = {0}, sums[ROOM];
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  counts[0] = rank == 1 ? 1 : 2;
  int class = class_of(MPI_Allgatherv(data, rank == 0 ? 2 : 0, MPI_INT, got, counts, displs, MPI_INT, MPI_COMM_WORLD));
  if (rank < 2) expect(class == MPI_ERR_TRUNCATE, "allgatherv of ranks that disagree");
  gather();
  class = class_of(
      MPI_Allgatherv(data, 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_INT, got, counts, displs, MPI_INT, MPI_COMM_WORLD));
  expect(class != MPI_SUCCESS, "allgatherv without a datatype on one rank");
  gather();
  for (int r = 0; r < size; ++r) counts[r] = 1;
  if (rank == 0) counts[1] = -1;
  class = class_of(MPI_Reduce_scatter(values, sums, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  expect(class == (rank == 0 ? MPI_ERR_COUNT : MPI_ERR_OTHER), "reduce_scatter with a negative count");
  reduce();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  gather();
  reduce();
  neighbours();
#ifdef LARGE_COUNT
  large();
#endif
  if (argc > 1 && strcmp(argv[1], "taken") == 0) wrong();
  MPI_Finalize();
  return bad;
}
