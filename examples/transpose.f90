! SPDX-License-Identifier: Apache-2.0
! transpose: a matrix whose columns are spread over the ranks is transposed, the step that parallel Fourier transforms wait
! for. It knows nothing of davit: run it as it is, and with libdavit_mpi.so preloaded.
program transpose
  use mpi
  implicit none
  integer, parameter :: n = 1024, repeats = 50
  double precision, allocatable :: a(:, :), b(:, :), send(:), recv(:)
  integer, allocatable :: columns(:), counts(:), displs(:), first(:)
  integer :: code, rank, ranks, r, i, j, k, mine, repeat, wrong, all_wrong
  double precision :: start, seconds

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  allocate(columns(0:ranks - 1), counts(0:ranks - 1), displs(0:ranks - 1), first(0:ranks - 1))
  do r = 0, ranks - 1  ! n need not be divisible by the ranks
    columns(r) = n / ranks + merge(1, 0, r < mod(n, ranks))
    first(r) = r * (n / ranks) + min(r, mod(n, ranks))
  end do
  mine = columns(rank)
  counts = mine * columns
  displs = mine * first
  allocate(a(n, mine), b(n, mine), send(n * mine), recv(n * mine))
  do j = 1, mine
    do i = 1, n
      a(i, j) = dble(i) + dble(first(rank) + j) / (2 * n)
    end do
  end do

  seconds = 0
  do repeat = 1, repeats
    k = 0
    do r = 0, ranks - 1  ! rows of rank r, transposed
      do i = first(r) + 1, first(r) + columns(r)
        send(k + 1:k + mine) = a(i, :)
        k = k + mine
      end do
    end do
    start = MPI_Wtime()
    call MPI_Alltoallv(send, counts, displs, MPI_DOUBLE_PRECISION, recv, counts, displs, MPI_DOUBLE_PRECISION, &
                       MPI_COMM_WORLD, code)
    seconds = seconds + MPI_Wtime() - start
    do r = 0, ranks - 1
      do j = 1, mine
        k = displs(r) + (j - 1) * columns(r)
        b(first(r) + 1:first(r) + columns(r), j) = recv(k + 1:k + columns(r))
      end do
    end do
  end do

  wrong = 0
  do j = 1, mine
    do i = 1, n
      if (b(i, j) /= dble(first(rank) + j) + dble(i) / (2 * n)) wrong = wrong + 1
    end do
  end do
  call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  if (rank == 0) then
    print '(a, i0, a, i0, a, f0.1, a)', 'transpose: ', n, ' x ', n, ', ', seconds / repeats * 1d6, ' us each'
    print '(a)', merge('PASS', 'FAIL', all_wrong == 0)
  end if
  call MPI_Finalize(code)
  if (all_wrong /= 0) stop 1
end program transpose
