! SPDX-License-Identifier: Apache-2.0
! MPI_Alltoallv and MPI_Ialltoallv from Fortran, in place too. Rank 1 expects nothing of what rank 0 sends last: davit says so on both.
program fortran
  use mpi
  implicit none
  integer :: code, rank, size, r, class, request
  logical :: flag
  integer, allocatable :: counts(:), displs(:), send(:), recv(:)
  logical :: good
  good = .true.
  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, size, code)
  allocate(counts(size), displs(size), send(size), recv(size))
  counts = 1
  do r = 1, size
    displs(r) = r - 1
    send(r) = 100 * rank + r - 1
  end do
  call MPI_Alltoallv(send, counts, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, code)
  do r = 1, size
    good = good .and. recv(r) == 100 * (r - 1) + rank
  end do
  call MPI_Alltoallv(MPI_IN_PLACE, counts, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, code)
  good = good .and. all(recv == send)
  call MPI_Ialltoallv(MPI_IN_PLACE, counts, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, &
                      request, code)
  flag = .false.
  do while (.not. flag)
    call MPI_Test(request, flag, MPI_STATUS_IGNORE, code)
  end do
  do r = 1, size
    good = good .and. recv(r) == 100 * (r - 1) + rank
  end do
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, code)
  counts = 0
  send = 0
  if (rank == 1) counts(1) = 1
  call MPI_Alltoallv(send, send, displs, MPI_INTEGER, recv, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, code)
  call MPI_Error_class(code, class, r)
  if (rank < 2) good = good .and. class == MPI_ERR_TRUNCATE
  call MPI_Finalize(code)
  if (.not. good) stop 1
end program fortran
