// SPDX-License-Identifier: Apache-2.0
/// @file
/// The longer texts of --help. At most 100 columns.
#pragma once

namespace perf::help {

constexpr char const* about =
    R"(davit_perf times davit beside a peer: batch by batch in turn, in one run, on the same data.

Try:
  mpirun -n 4 davit_perf alltoallv --check
  mpirun -n 4 davit_perf alltoallv --min 64K --max 16M --skew zipf --json alltoallv.json
  mpirun -n 4 davit_perf moe --tokens 4096 --hidden 2048 --experts 64 --top-k 8 --check
  mpirun -n 2 davit_perf alltoallv --device cuda --vs staged-mpi,nccl --max 256M --check
  davit_perf moe --help
(As root Open MPI wants --allow-run-as-root, with more ranks than cores --oversubscribe.)
)";

constexpr char const* notes =
    R"(How it measures: both sides have the same input, which changes before every call. A sample is the
slowest rank's time of a batch of calls, of at least 200 microseconds, that starts at a barrier, by
the number of calls; on a GPU of 1 ms, taken by events on the stream that all calls are enqueued on
(by the wall clock for what blocks). Times are the median (p50) and p99, in microseconds a call.
ratio = the peer's p50 / davit's p50: above 1, davit is the faster.
GB/s = 10^9 bytes that a rank sends to all others (the ranks' mean), a second of davit's p50.
ceiling (GPU): what davit moved over a rank's link, up and down together, beside what copies of 4 MiB
move that run both ways at once on all ranks, measured just before.

Peers on a GPU:
  staged-mpi  what an MPI program does: copies down to pinned memory, MPI, copies up; the own block or
              rows never leave the GPU
  nccl        ncclSend and ncclRecv in one group; equal blocks by ncclAllGather and ncclReduceScatter.
              Without peer access and NVLS, as davit: NCCL_P2P_DISABLE=1 and NCCL_NVLS_ENABLE=0, unless
              they are set already. NCCL takes one GPU a rank

JSON: one object a line: op, device, ranks, bytes, davit_us, p99_us, peer, peer_us, peer_p99_us, ratio,
gbps, ceiling_gbps and ceiling_share (null on the host), version, batches (samples a side), iterations
(calls a batch), davit_min_us, peer_min_us, skew, path, seed, check (true, false, or null without
--check); reduce_scatterv: also dtype.

Further settings of davit come from its environment: DAVIT_SLOT_BYTES, DAVIT_SLOTS, DAVIT_DIRECT_BYTES,
DAVIT_TIMEOUT and others.

Exit code: 0 ok, 1 a check FAILED, 2 usage, 3 system, peer or time-out.)";

constexpr char const* exchange_notes =
    R"(Sizes take the suffixes K, M and G (powers of 1024) and go from --min to --max in steps of 4.

)";

constexpr char const* limits_notes =
    R"(Copies between memory of the GPU and registered host memory of the kind that slots are, whose 8 MiB
are used again and again, from --min to --max in steps of 4: up, down, and both at once. GB/s a
direction, the ranks' mean and their least; all ranks copy at once.
JSON: op, device, ranks, bytes, up_gbps, down_gbps, both_gbps (means), up_least_gbps, down_least_gbps,
both_least_gbps, version.)";

constexpr char const* alltoallv_skew =
    R"(Blocks of a rank: all equal; the n-th rank's by 1/n; all for rank 0. Their mean is the size)";
constexpr char const* blocks_skew = R"(Blocks: all equal; the n-th rank's by 1/n. Their mean is the size)";
constexpr char const* moe_skew =
    R"(Experts' popularity: all equal; by 1/n, in an order drawn by the seed; those of rank 0 first)";

constexpr char const* moe_notes =
    R"(Each token chooses distinct experts, drawn by popularity; weights are a softmax of normal numbers.
Phases, one line each:
  route     ids and weights to the ranks that need them
  dispatch  rows to their experts, contiguous an expert, into the caller's memory
  combine   the experts' results back to the tokens, weighted and summed; results = rows received
  total     dispatch and combine back to back, timed by itself
Peers:
  mpi         the MPI recipe done well: one row a (token, rank) is packed, sent by MPI_Alltoallv and
              expanded to the experts; partial sums come back, the owner adds them. Buffers stay, all
              lists are made in its route, rows are moved and summed by the same kernels as davit's.
  mpi-expert  the careless recipe: one row a (token, expert) there and back, and not laid out by expert;
              its route exchanges row counts only.
Peers on a GPU, rows moved and summed by davit's own kernels, rows and partial sums of --dtype:
  staged-mpi  the same recipe as mpi; the packed rows are staged in pinned memory
  nccl        the same recipe; the packed rows go by ncclSend and ncclRecv in one group
  nccl-dense  as serving frameworks do: ncclAllGather of all tokens' rows, and each rank takes what it
              needs; back, a weighted partial row for every token of all ranks, ncclReduceScatter
--check: received rows equal bit by bit; combined rows within 3u * S of a sum in f64, u the unit
round-off of the dtype and S the sum of the terms' sizes; beside mpi, which rounds where davit does,
equal bit by bit too.
bytes: what a rank sends to all others (the ranks' mean): one row a (token, other rank) for dispatch
and for combine, both for total; for route the ids and weights of its tokens, counted once.
JSON: also phase, tokens, hidden, experts, top_k, dtype. The last line of the table is the mean over
the totals.

)";

}  // namespace perf::help
