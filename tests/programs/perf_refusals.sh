#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# perf_refusals.sh DAVIT_PERF yes|no MPIRUN...: what it refuses, with exit code 2 and a text that names what and why. The
# second word: whether it was built with CUDA.
set -euo pipefail
perf=$1 has_cuda=$2
shift 2
mpirun=("$@")
bad=0
complain() { echo "$@"; bad=1; }

# refused TEXT ARGUMENTS...
refused() {
  local text=$1 code=0 said
  shift
  said=$("${mpirun[@]}" -n 1 "$perf" "$@" 2>&1) || code=$?
  [[ $code == 2 ]] || complain "$*: exit code $code, should be 2: $said"
  grep -qF -- "$text" <<<"$said" || complain "$*: '$text' is missing in: $said"
}

refused "one of alltoallv, allgatherv, reduce_scatterv, moe, limits"
refused "'alltoall' is no operation of davit_perf" alltoall
refused "--vs: 'nccl', must be one of mpi with --device host" alltoallv --vs nccl
refused "--vs: 'nccl-dense', must be one of mpi with --device host" alltoallv --vs nccl-dense
refused "--vs: 'staged-mpi', must be one of mpi|mpi-expert with --device host" moe --vs staged-mpi
refused "--dtype: 'bf16', must be f32 beside mpi" reduce_scatterv --dtype bf16
refused "--min: '2', must be at least one element of --dtype, 4 bytes" reduce_scatterv --min 2
refused "--min: '2K', must be at most --max, which is 1K" alltoallv --min 2K --max 1K
refused "--top-k: '9', must be at most --experts, which is 8" moe --experts 8 --top-k 9
refused "--device: 'host', must be cuda" limits
refused "--device: 'gpu', must be one of host|cuda" alltoallv --device gpu
if [[ $has_cuda == yes ]]; then
  refused "--vs: 'mpi', must be one of staged-mpi|nccl with --device cuda" alltoallv --vs mpi --device cuda
  refused "--vs: 'mpi-expert', must be one of staged-mpi|nccl|nccl-dense" moe --device cuda --vs mpi-expert
  refused "--vs: 'nccl-dense', must be one of staged-mpi|nccl with" reduce_scatterv --vs nccl-dense --device cuda
else
  refused "this build of davit has no CUDA backend" alltoallv --device cuda
  refused "this build of davit has no CUDA backend" limits --device cuda
fi
exit $bad
