! SPDX-License-Identifier: Apache-2.0
! MPI_Alltoallv, MPI_Ialltoallv, MPI_Allgatherv by mpi_f08. Rank 1 expects nothing of what rank 0 sends last: davit says
! so on both.
program fortran_f08
  use mpi_f08
  implicit none
  integer :: code, rank, size, r, class
  integer, allocatable :: counts(:), displs(:)
  integer, allocatable, asynchronous :: send(:), recv(:)
  type(MPI_Request) :: requests(2)
  logical :: good
  good = .true.
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  allocate(counts(size), displs(size), send(size), recv(size))
  counts = 1
  do r = 1, size
    displs(r) = r - 1
    send(r) = 100 * rank + r - 1
  end do
  call MPI_Alltoallv(send, counts, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD)
  do r = 1, size
    good = good .and. recv(r) == 100 * (r - 1) + rank
  end do
  call MPI_Alltoallv(MPI_IN_PLACE, counts, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD)
  good = good .and. all(recv == send)
  recv = -1
  call MPI_Ialltoallv(send, counts, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, requests(1))
  call MPI_Ibarrier(MPI_COMM_WORLD, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  do r = 1, size
    good = good .and. recv(r) == 100 * (r - 1) + rank
  end do
  call MPI_Allgatherv(rank, 1, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD)
  good = good .and. all(recv == displs)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
  counts = 0
  send = 0
  if (rank == 1) counts(1) = 1
  call MPI_Ialltoallv(send, send, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, requests(1))
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, code)
  call MPI_Error_class(code, class)
  if (rank < 2) good = good .and. class == MPI_ERR_TRUNCATE
  call MPI_Finalize()
  if (.not. good) stop 1
end program fortran_f08
