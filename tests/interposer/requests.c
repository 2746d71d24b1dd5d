/* SPDX-License-Identifier: Apache-2.0 */
/* requests [taken]: nonblocking and persistent forms of MPI_Alltoallv, completed in every way that MPI has, mixed with
 * requests of others. With `taken` wrong calls too, whose errors only davit tells. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MPI_EXTENSION
#include <mpi-ext.h>
#endif

enum { MOST = 16, ROOM = 4096, BIG = 40000, MINE = 3, ALL = 6 };
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

/* An exchange of `n` ints a pair, with memory of its own. */
struct exchange {
  int *send, *recv, counts[MOST], displs[MOST], n, salt;
};

static void prepare(struct exchange* e, int n, int salt) {
  e->n = n, e->salt = salt;
  e->send = malloc(sizeof(int) * (size_t)(size * n));
  e->recv = malloc(sizeof(int) * (size_t)(size * n));
  for (int r = 0; r < size; ++r) {
    e->counts[r] = n, e->displs[r] = r * n;
    for (int i = 0; i < n; ++i) e->send[r * n + i] = value(rank, r, i + salt), e->recv[r * n + i] = -7;
  }
}
static void post(struct exchange* e, int n, int salt, MPI_Comm comm, MPI_Request* request) {
  prepare(e, n, salt);
  if (salt % 2)
    MPI_Ialltoall(e->send, n, MPI_INT, e->recv, n, MPI_INT, comm, request);
  else
    MPI_Ialltoallv(e->send, e->counts, e->displs, MPI_INT, e->recv, e->counts, e->displs, MPI_INT, comm, request);
}
static void look(struct exchange const* e, char const* what) {
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < e->n; ++i) {
      if (e->recv[r * e->n + i] != value(r, rank, i + e->salt)) expect(0, what), i = e->n;
    }
  }
}
static void check(struct exchange* e, char const* what) {
  look(e, what);
  free(e->send);
  free(e->recv);
}

static int query(void* extra, MPI_Status* status) {
  (void)extra;
  MPI_Status_set_elements(status, MPI_INT, 3);
  MPI_Status_set_cancelled(status, 0);
  return MPI_SUCCESS;
}
static int none(void* extra) { return extra != NULL; }
static int never(void* extra, int complete) { return extra != NULL && complete; }

/* Three exchanges, a message from the left, one to the right, a null request: completed by `flavour`. */
static void mixed(int flavour) {
  struct exchange e[MINE];
  MPI_Request requests[ALL];
  MPI_Status statuses[ALL];
  int const left = (rank + size - 1) % size, right = (rank + 1) % size;
  int got = -1, flag = 0, index, done, indices[ALL], seen[ALL] = {0};
  char what[32];
  snprintf(what, sizeof what, "flavour %d", flavour);
  for (int i = 0; i < MINE; ++i) post(&e[i], i == 1 ? BIG : 7, 10 * flavour + i, MPI_COMM_WORLD, &requests[2 * i]);
  MPI_Irecv(&got, 1, MPI_INT, left, flavour, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(&rank, 1, MPI_INT, right, flavour, MPI_COMM_WORLD, &requests[3]);
  requests[5] = MPI_REQUEST_NULL;
  switch (flavour) {
    case 0:
      for (int i = ALL - 1; i >= 0; --i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
      break;
    case 1:
      for (int i = 0; i < ALL; ++i) {
        for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, &statuses[i]);
      }
      break;
    case 2:
      MPI_Waitall(ALL, requests, statuses);
      expect(statuses[1].MPI_SOURCE == left && statuses[1].MPI_TAG == flavour, "status of a message in Waitall");
      break;
    case 3:
      while (!flag) MPI_Testall(ALL, requests, &flag, MPI_STATUSES_IGNORE);
      break;
    case 4:
    case 5:
      for (int left_over = ALL - 1; left_over > 0; --left_over) {
        if (flavour == 4) MPI_Waitany(ALL, requests, &index, MPI_STATUS_IGNORE);
        if (flavour == 5) {
          for (flag = 0; !flag;) MPI_Testany(ALL, requests, &index, &flag, MPI_STATUS_IGNORE);
        }
        expect(index >= 0 && index < ALL - 1 && !seen[index], "index of any");
        if (index >= 0 && index < ALL) seen[index] = 1;
      }
      MPI_Testany(ALL, requests, &index, &flag, MPI_STATUS_IGNORE);
      expect(flag && index == MPI_UNDEFINED, "nothing left for any");
      break;
    default:
      for (int left_over = ALL - 1; left_over > 0; left_over -= done) {
        if (flavour == 6)
          MPI_Waitsome(ALL, requests, &done, indices, statuses);
        else
          MPI_Testsome(ALL, requests, &done, indices, MPI_STATUSES_IGNORE);
        for (int i = 0; i < done; ++i) expect(!seen[indices[i]]++, "index of some");
      }
      MPI_Testsome(ALL, requests, &done, indices, MPI_STATUSES_IGNORE);
      expect(done == MPI_UNDEFINED, "nothing left for some");
  }
  for (int i = 0; i < ALL; ++i) expect(requests[i] == MPI_REQUEST_NULL, what);
  expect(got == left, what);
  for (int i = 0; i < MINE; ++i) check(&e[i], what);
}

/* Rank 1 takes part only once rank 0 has returned from its call. */
static void local(void) {
  struct exchange e;
  MPI_Request request;
  if (rank == 1) MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  post(&e, 100, 50, MPI_COMM_WORLD, &request);
  if (rank == 0) MPI_Send(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  check(&e, "local");
}

/* Two communicators in opposite orders; one is freed while its exchange is open; a request is freed. */
static void orders(void) {
  struct exchange e[4], warm;
  MPI_Comm comms[2];
  MPI_Request requests[2], freed;
  int flag = 0;
  for (int i = 0; i < 2; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    prepare(&warm, 3, 8);
    MPI_Alltoall(warm.send, 3, MPI_INT, warm.recv, 3, MPI_INT, comms[i]);
    check(&warm, "first call");
  }
  for (int i = 0; i < 2; ++i) {
    int const k = rank % 2 ? 1 - i : i;
    post(&e[k], BIG, 60 + k, comms[k], &requests[k]);
  }
  post(&e[2], BIG, 64, MPI_COMM_WORLD, &freed);
  if (taken) MPI_Request_free(&freed); /* MPI forbids it, and some libraries take offence */
  expect(!taken || freed == MPI_REQUEST_NULL, "freed");
  MPI_Comm_free(&comms[0]);
  while (!flag) MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
  MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
  expect(flag, "status of what is complete");
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  check(&e[0], "communicator freed meanwhile");
  check(&e[1], "opposite orders");
  prepare(&e[3], 5, 3);
  MPI_Alltoallv(e[3].send, e[3].counts, e[3].displs, MPI_INT, e[3].recv, e[3].counts, e[3].displs, MPI_INT,
                MPI_COMM_WORLD); /* runs behind the one that was freed */
  check(&e[3], "blocking behind a freed one");
  if (!taken) MPI_Wait(&freed, MPI_STATUS_IGNORE);
  check(&e[2], "freed request");
  MPI_Comm_free(&comms[1]);
}

/* Types with gaps that are freed, and counts that change, while the exchange is open; in place; a request of others. */
static void odd(void) {
  MPI_Datatype spread;
  MPI_Request requests[3];
  MPI_Status status;
  int counts[MOST], displs[MOST], send[ROOM], recv[ROOM], both[MOST], number = 0;
  MPI_Type_create_resized(MPI_INT, 0, 3 * (MPI_Aint)sizeof(int), &spread);
  MPI_Type_commit(&spread);
  for (int r = 0; r < size; ++r) {
    counts[r] = 2, displs[r] = 2 * r, both[r] = value(rank, r, 1);
    for (int i = 0; i < 2; ++i) send[2 * r + i] = value(rank, r, i);
  }
  for (int i = 0; i < 6 * size; ++i) recv[i] = -7;
  MPI_Ialltoallv(send, counts, displs, MPI_INT, recv, counts, displs, spread, MPI_COMM_WORLD, &requests[0]);
  MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both, 1, MPI_INT, MPI_COMM_WORLD, &requests[1]);
  MPI_Grequest_start(query, none, never, NULL, &requests[2]);
  MPI_Type_free(&spread);
  MPI_Grequest_complete(requests[2]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Wait(&requests[2], &status);
  MPI_Get_elements(&status, MPI_INT, &number);
  expect(number == 3, "a generalized request of the program");
  for (int i = 0; i < 6 * size; ++i) {
    expect(recv[i] == (i % 3 ? -7 : value(i / 6, rank, i / 3 % 2)), "a type with gaps");
  }
  for (int r = 0; r < size; ++r) expect(both[r] == value(r, rank, 1), "in place");
}

static void wrong(void) {
  int to[MOST] = {0}, from[MOST] = {0}, at[MOST] = {0}, data[64] = {0}, got[64], class;
  struct exchange e;
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Alltoall(data, 1, MPI_INT, got, 1, MPI_INT, comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN); /* that of the world stays fatal */
  if (rank == 0) to[1] = 4;
  if (rank == 1) from[0] = 3;
  for (int plural = 0; plural < 2; ++plural) {
    MPI_Ialltoallv(data, to, at, MPI_INT, got, from, at, MPI_INT, comm, &requests[0]);
    post(&e, 9, 70, comm, &requests[1]);
    if (plural) {
      class = class_of(MPI_Waitall(2, requests, statuses));
      if (rank < 2) {
        expect(class == MPI_ERR_IN_STATUS, "Waitall of a mismatch");
        expect(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE, "status of a mismatch");
        expect(statuses[1].MPI_ERROR == MPI_SUCCESS, "status of the good one");
      }
    } else {
      class = class_of(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
      if (rank < 2) expect(class == MPI_ERR_TRUNCATE, "Wait of a mismatch");
      expect(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS, "the next one");
    }
    check(&e, "after a mismatch");
  }
  if (rank == 0) to[1] = -1;
  if (rank == 1) from[0] = 0;
  class = class_of(MPI_Ialltoallv(data, to, at, MPI_INT, got, from, at, MPI_INT, comm, &requests[0]));
  if (rank == 0) expect(class == MPI_ERR_COUNT, "negative count");
  if (rank != 0) expect(class_of(MPI_Wait(&requests[0], &statuses[0])) == MPI_ERR_OTHER, "peer of a negative count");
  post(&e, 9, 80, comm, &requests[1]);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  check(&e, "after a negative count");
  MPI_Comm_free(&comm);
}

#ifdef ALLTOALLV_INIT
/* Two persistent exchanges, started in another order on odd ranks, beside a persistent message. */
static void persistent(void) {
  struct exchange e[2];
  MPI_Request requests[4];
  int got, flag, index, done, indices[4];
  int const left = (rank + size - 1) % size, right = (rank + 1) % size;
  for (int i = 0; i < 2; ++i) prepare(&e[i], i ? BIG : 11, 90 + i);
  ALLTOALLV_INIT(e[0].send, e[0].counts, e[0].displs, MPI_INT, e[0].recv, e[0].counts, e[0].displs, MPI_INT,
                 MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
  ALLTOALL_INIT(e[1].send, BIG, MPI_INT, e[1].recv, BIG, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  MPI_Recv_init(&got, 1, MPI_INT, left, 3, MPI_COMM_WORLD, &requests[2]);
  MPI_Send_init(&rank, 1, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[3]);
  if (taken) MPI_Wait(&requests[0], MPI_STATUS_IGNORE); /* inactive: MPICH 4.0 never returns */
  for (int round = 0; round < 12; ++round) {
    got = -1;
    for (int i = 0; i < 2; ++i) {
      e[i].salt = round;
      for (int r = 0; r < size; ++r) {
        for (int k = 0; k < e[i].n; ++k) {
          e[i].send[r * e[i].n + k] = value(rank, r, k + round), e[i].recv[r * e[i].n + k] = -7;
        }
      }
    }
    if (round % 2) {
      MPI_Startall(4, requests);
    } else {
      for (int i = 0; i < 4; ++i) MPI_Start(&requests[rank % 2 ? 3 - i : i]);
    }
    int const flavour = taken ? round % 4 : 0; /* MPICH 4.0 knows no other for its own */
    if (flavour == 0) MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    if (flavour == 1) {
      for (flag = 0; !flag;) MPI_Testall(4, requests, &flag, MPI_STATUSES_IGNORE);
    }
    if (flavour == 2) {
      for (int i = 0; i < 4; ++i) MPI_Waitany(4, requests, &index, MPI_STATUS_IGNORE);
    }
    for (int left_over = flavour == 3 ? 4 : 0; left_over > 0; left_over -= done) {
      MPI_Waitsome(4, requests, &done, indices, MPI_STATUSES_IGNORE);
    }
    if (taken) MPI_Testany(4, requests, &index, &flag, MPI_STATUS_IGNORE);
    expect(!taken || (flag && index == MPI_UNDEFINED), "all inactive");
    expect(got == left, "persistent message");
    for (int i = 0; i < 2; ++i) look(&e[i], "persistent");
  }
  for (int i = 0; i < 4; ++i) MPI_Request_free(&requests[i]);
  for (int i = 0; i < 2; ++i) check(&e[i], "persistent, freed");
}
#endif

int main(int argc, char** argv) {
  struct exchange e;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  taken = argc > 1 && strcmp(argv[1], "taken") == 0;
  post(&e, 20, 2, MPI_COMM_WORLD, &request); /* before any blocking call: MPI's */
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  check(&e, "first of all");
  post(&e, 20, 4, MPI_COMM_WORLD, &request); /* open while davit's communicator is made */
  struct exchange first;
  prepare(&first, 5, 6);
  MPI_Alltoallv(first.send, first.counts, first.displs, MPI_INT, first.recv, first.counts, first.displs, MPI_INT,
                MPI_COMM_WORLD);
  check(&first, "first blocking");
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  check(&e, "open before the first blocking");
  for (int round = 0; round < 3; ++round) {
    for (int flavour = 0; flavour < 8; ++flavour) mixed(flavour);
  }
  local();
  orders();
  odd();
#ifdef ALLTOALLV_INIT
  persistent();
#endif
  if (taken) wrong();
  MPI_Finalize();
  return bad;
}
