/* SPDX-License-Identifier: Apache-2.0 */
/* odd_calls [taken]: calls of MPI_Alltoallv and MPI_Alltoall that are legal but odd, in plain C. With `taken` wrong
 * calls too, whose errors only davit tells on all ranks concerned, which also proves that davit has the calls. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CALLS_DAVIT
#include "davit/davit_mpi.h"
#define MPI_Alltoallv davit_alltoallv
#define MPI_Alltoall davit_alltoall
#endif

enum { MOST = 16, ROOM = 4096, LONG = 100000 };
static int rank, size, bad, taken;

static void expect(int good, char const* what) {
  if (good) return;
  printf("rank %d: FAILED: %s\n", rank, what);
  bad = 1;
}

static int value(int from, int to, int i) { return from * 1000003 + to * 1009 + i; }

static int class_of(int code) {
  int class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  return class;
}

/* `n` ints for each pair, one int of gap before each block, blocks in reversed order. */
static void reversed(MPI_Comm comm, int n, char const* what) {
  int counts[MOST], displs[MOST], me, ranks;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  int* send = malloc(sizeof(int) * (size_t)(ranks * (n + 1)));
  int* recv = malloc(sizeof(int) * (size_t)(ranks * (n + 1)));
  for (int r = 0; r < ranks; ++r) {
    counts[r] = n;
    displs[r] = (ranks - 1 - r) * (n + 1) + 1;
    for (int i = 0; i < n; ++i) send[displs[r] + i] = value(me, r, i);
  }
  for (int i = 0; i < ranks * (n + 1); ++i) recv[i] = -7;
  expect(MPI_Alltoallv(send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, comm) == MPI_SUCCESS, what);
  for (int r = 0; r < ranks; ++r) {
    expect(recv[displs[r] - 1] == -7, what);
    for (int i = 0; i < n; ++i) {
      if (recv[displs[r] + i] != value(r, me, i)) expect(0, what), i = n;
    }
  }
  free(send);
  free(recv);
}

static void in_place(void) {
  int counts[MOST], displs[MOST], recv[ROOM], uniform[MOST];
  for (int r = 0; r < size; ++r) {
    counts[r] = r == rank ? 0 : 3 + r + rank;
    displs[r] = r * 64;
    for (int i = 0; i < counts[r]; ++i) recv[displs[r] + i] = value(rank, r, i);
    uniform[r] = value(rank, r, 0);
  }
  expect(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, recv, counts, displs, MPI_INT, MPI_COMM_WORLD) ==
             MPI_SUCCESS,
         "in place");
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < counts[r]; ++i) expect(recv[displs[r] + i] == value(r, rank, i), "in place, data");
  }
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, uniform, 1, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) expect(uniform[r] == value(r, rank, 0), "alltoall in place");
}

static void empty(void) {
  int zeros[MOST] = {0}, garbage[MOST];
  for (int r = 0; r < size; ++r) garbage[r] = r % 2 ? 0x7ffffff0 : -5;
  int *send = taken ? NULL : &zeros[0], *recv = taken ? NULL : &zeros[1]; /* MPICH finds two null buffers aliased */
  expect(MPI_Alltoallv(send, zeros, garbage, MPI_INT, recv, zeros, garbage, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS,
         "all counts 0");
}

/* Each side describes the same ints by another datatype. */
static void datatypes(void) {
  MPI_Datatype pair, spread, swapped;
  int send[ROOM], recv[ROOM], four[MOST], two[MOST], at4[MOST], at2[MOST];
  int lengths[2] = {1, 1}, places[2] = {1, 0};
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_create_resized(MPI_INT, 0, 3 * (MPI_Aint)sizeof(int), &spread);
  MPI_Type_indexed(2, lengths, places, MPI_INT, &swapped);
  MPI_Type_commit(&pair);
  MPI_Type_commit(&spread);
  MPI_Type_commit(&swapped);
  for (int r = 0; r < size; ++r) {
    four[r] = 4, two[r] = 2, at4[r] = 4 * r, at2[r] = 2 * r;
    for (int i = 0; i < 4; ++i) send[4 * r + i] = value(rank, r, i);
  }
  MPI_Alltoallv(send, four, at4, MPI_INT, recv, two, at2, pair, MPI_COMM_WORLD);
  for (int i = 0; i < 4 * size; ++i) expect(recv[i] == value(i / 4, rank, i % 4), "pairs");
  for (int i = 0; i < 12 * size; ++i) recv[i] = -7;
  MPI_Alltoallv(send, two, at2, pair, recv, four, at4, spread, MPI_COMM_WORLD);
  for (int i = 0; i < 12 * size; ++i)
    expect(recv[i] == (i % 3 ? -7 : value(i / 12, rank, i / 3 % 4)), "a type with gaps");
  MPI_Alltoallv(send, two, at2, swapped, recv, four, at4, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < 4 * size; ++i) expect(recv[i] == value(i / 4, rank, (i % 4) ^ 1), "a type in another order");
  MPI_Alltoall(send, 2, swapped, recv, 2, swapped, MPI_COMM_WORLD);
  for (int i = 0; i < 4 * size; ++i) expect(recv[i] == value(i / 4, rank, i % 4), "alltoall of such a type");
  MPI_Type_free(&pair);
  MPI_Type_free(&spread);
  MPI_Type_free(&swapped);
}

static int copies;
static int count_copy(MPI_Comm comm, int key, void* extra, void* in, void* out, int* flag) {
  (void)comm, (void)key, (void)extra, (void)in, (void)out;
  ++copies;
  *flag = 0;
  return MPI_SUCCESS;
}

/* Communicators come and go, in an order of their own; handles are used again. */
static void communicators(void) {
  int key;
  MPI_Comm_create_keyval(count_copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
  for (int round = 0; round < 10; ++round) {
    MPI_Comm half, copy;
    MPI_Comm_split(MPI_COMM_WORLD, round % 2 ? 0 : rank % 2, -rank, &half);
    MPI_Comm_set_attr(half, key, NULL);
    reversed(half, 5 + round, "a part");
    expect(copies == round, "the program's attributes are not copied by davit");
    MPI_Comm_dup(half, &copy);
    reversed(copy, 50 + round, "a copy");
    MPI_Comm_free(&half);
    reversed(copy, 500 + round, "a copy whose original is gone");
    MPI_Comm_free(&copy);
  }
  MPI_Comm_free_keyval(&key);
  reversed(MPI_COMM_SELF, 3, "one rank");
}

static void between_groups(void) {
  MPI_Comm half, inter;
  int group = rank % 2, others, peers[MOST], got[MOST], ones[MOST], at[MOST];
  MPI_Comm_split(MPI_COMM_WORLD, group, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - group, 5, &inter);
  MPI_Comm_remote_size(inter, &others);
  for (int r = 0; r < others; ++r) ones[r] = 1, at[r] = r, peers[r] = rank;
  MPI_Alltoallv(peers, ones, at, MPI_INT, got, ones, at, MPI_INT, inter);
  for (int r = 0; r < others; ++r) expect(got[r] == 2 * r + 1 - group, "inter-communicator");
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

/* Rank 0 sends `sent` ints to rank 1, which expects `expected`; all else is empty. */
static int lopsided(int sent, int expected) {
  int to[MOST] = {0}, from[MOST] = {0}, at[MOST] = {0}, data[64] = {0}, got[64];
  if (rank == 0) to[1] = sent;
  if (rank == 1) from[0] = expected;
  return class_of(MPI_Alltoallv(data, to, at, MPI_INT, got, from, at, MPI_INT, MPI_COMM_WORLD));
}

static void wrong(void) {
  int counts[MOST], at[MOST] = {0}, data[ROOM] = {0}, got[ROOM];
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int const cases[][2] = {{4, 3}, {3, 4}, {1, 0}, {0, 1}};
  for (int i = 0; i < 4; ++i) {
    int const class = lopsided(cases[i][0], cases[i][1]);
    if (rank < 2) expect(class == MPI_ERR_TRUNCATE, "bytes of a pair differ");
    reversed(MPI_COMM_WORLD, 9, "after a mismatch");
  }
  for (int r = 0; r < size; ++r) counts[r] = rank == 0 && r == 1 ? -1 : 0;
  int class = class_of(MPI_Alltoallv(data, counts, at, MPI_INT, got, at, at, MPI_INT, MPI_COMM_WORLD));
  expect(class == (rank == 0 ? MPI_ERR_COUNT : MPI_ERR_OTHER), "negative count");
  reversed(MPI_COMM_WORLD, 9, "after a negative count");
  class = class_of(MPI_Alltoall(data, 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD));
  expect(class == (rank == 0 ? MPI_ERR_TYPE : MPI_ERR_OTHER), "no datatype");
  reversed(MPI_COMM_WORLD, 9, "after no datatype");
  class = class_of(MPI_Alltoall(data, 1, MPI_INT, rank == 0 ? MPI_IN_PLACE : got, 1, MPI_INT, MPI_COMM_WORLD));
  expect(class == (rank == 0 ? MPI_ERR_BUFFER : MPI_ERR_OTHER), "in place on the wrong side");
  reversed(MPI_COMM_WORLD, 9, "after in place on the wrong side");
  class = class_of(MPI_Alltoall(data, 1, MPI_INT, got, 2, MPI_INT, MPI_COMM_WORLD));
  expect(class == MPI_ERR_TRUNCATE, "the block a rank keeps");
  reversed(MPI_COMM_WORLD, 9, "after that");
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  taken = argc > 1 && strcmp(argv[1], "taken") == 0;
  reversed(MPI_COMM_WORLD, 4, "reversed displacements with gaps");
  reversed(MPI_COMM_WORLD, LONG, "long blocks");
  in_place();
  empty();
  datatypes();
  communicators();
  between_groups();
  if (taken) wrong();
  MPI_Finalize();
  return bad;
}
