#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

usage() {
  cat <<'USAGE'
usage: examples/davit_perf/measure.sh [--minutes N] [--ranks N] [--no-check] [--only REGEX] FOLDER

Builds davit_perf for the GPUs of this machine and runs the whole set of measurements, most telling first: links, alltoallv,
moe in the shapes of four models, allgatherv, reduce_scatterv. Tables and JSON lines go to FOLDER. With two GPUs or more: a
rank a GPU (or --ranks), beside nccl, nccl-dense and staged-mpi. With one: two ranks share it, smaller sizes, beside staged-mpi
alone. What does not fit in --minutes (default 25) is left out, and named. --only: the runs whose names match. Nothing is
installed: where CLI11 and nlohmann-json are not, their headers are looked for in .carry.
USAGE
}

minutes=25 ranks='' only=. check=(--check) folder=''
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    --ranks) ranks=${2:?--ranks needs a number}; shift ;;
    --only) only=${2:?--only needs a regular expression}; shift ;;
    --no-check) check=() ;;
    -*) usage >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done
if [[ -z $folder ]] || ! [[ $minutes =~ ^[1-9][0-9]*$ ]] || ! [[ ${ranks:-1} =~ ^[1-9][0-9]*$ ]]; then usage >&2; exit 2; fi
end=$((SECONDS + 60 * minutes))

gpus=$(davit_gpus)
((gpus)) || die "no GPU here"
davit_find_nvcc || die "nvcc not found"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
build=$davit_root/build/cuda-perf
davit_configure_for_gpu "$build" -DDAVIT_BUILD_TESTS=OFF -DDAVIT_BUILD_EXAMPLES=ON
davit_has_target "$build" davit_perf || die "davit_perf cannot be built here, see $build/configure.log"
cmake --build "$build" --target davit_perf
perf=$build/bin/davit_perf

bad=0 left=()
# measure NAME ARGUMENTS...
measure() {
  local name=$1 rest=$((end - SECONDS)) code=0
  shift
  grep -qE "$only" <<<"$name" || return 0
  if ((rest < 20)); then left+=("$name"); return 0; fi
  rm -f "$folder/$name.json"
  davit_mpirun_gpus "$ranks" timeout "$rest" "$perf" "$@" --json "$folder/$name.json" 2>&1 | tee "$folder/$name.txt" || code=$?
  case $code in
    0) ;;
    124 | 137) left+=("$name (cut off)") ;;
    *) bad=1; echo "$name: exit code $code" ;;
  esac
}

sizes=(--min 1K --max 256M) tokens=1,16,128,4096 swift=(nccl) peers=nccl,staged-mpi dense=(nccl-dense nccl)
if ((gpus < 2)); then
  ranks=${ranks:-2} sizes=(--min 1K --max 16M) tokens=1,16,128 swift=(staged-mpi) peers=staged-mpi dense=()
  say "ONE GPU: $ranks ranks share it, and the figures say little"
elif ! grep -qE 'NCCL_LIBRARY:FILEPATH=/' "$build/CMakeCache.txt"; then
  swift=(staged-mpi) peers=staged-mpi dense=()
  say "NO NCCL HERE: beside staged-mpi alone"
fi
ranks=${ranks:-$gpus}
common=(--device cuda --verbose ${check[@]+"${check[@]}"})
shapes=(qwen3-30b-a3b deepseek-v3 gpt-oss-120b mixtral-8x7b)

measure limits limits --device cuda
measure "alltoallv.${swift[0]}" alltoallv "${sizes[@]}" --vs "${swift[0]}" "${common[@]}"
for peer in ${dense[@]+"${dense[@]}"}; do
  for shape in "${shapes[@]}"; do measure "moe.$shape.$peer" moe --shape "$shape" --tokens "$tokens" --vs "$peer" "${common[@]}"; done
done
if [[ ${swift[0]} != staged-mpi ]]; then measure alltoallv.staged-mpi alltoallv "${sizes[@]}" --vs staged-mpi "${common[@]}"; fi
for shape in "${shapes[@]}"; do
  measure "moe.$shape.staged-mpi" moe --shape "$shape" --tokens "$tokens" --vs staged-mpi "${common[@]}"
done
measure allgatherv allgatherv "${sizes[@]}" --vs "$peers" "${common[@]}"
measure reduce_scatterv reduce_scatterv "${sizes[@]}" --vs "$peers" "${common[@]}"
if [[ ${swift[0]} == nccl ]]; then
  measure reduce_scatterv.bf16 reduce_scatterv "${sizes[@]}" --dtype bf16 --vs nccl "${common[@]}"
fi

say "results in $folder"
if ((${#left[@]})); then echo "NOT measured within $minutes minutes: ${left[*]}"; fi
exit $bad
