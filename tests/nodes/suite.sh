#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# suite.sh BUILD PART...: what is tested over nodes, from a build folder; builds nothing. A part is a spread of ranks (2+2),
# over which the tests of one node run as they are; `bits`: the same bits over every spread; `failures`: links, ranks and
# memory that give way. Prints what fails, with its output. Exit codes: 0, 1 failed, 77 where no nodes can be made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "$1" && pwd)/bin
shift
log=$(mktemp -d)
child=
trap '[[ -z $child ]] || kill "$child" 2>/dev/null || true; rm -rf "$log"' EXIT
trap 'exit 143' TERM INT HUP
export OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=${ASAN_OPTIONS-detect_leaks=0}
passed=0 failed=0

# in_time COMMAND...: runs it so that signals are seen at once, its output in $log/output.
in_time() {
  local code=0
  "$@" >"$log/output" 2>&1 &
  child=$!
  wait "$child" || code=$?
  child=
  if ((code == 77)); then
    cat "$log/output" >&2
    exit 77
  fi
  return "$code"
}

# verdict NAME CODE
verdict() {
  if (($2 == 0)); then
    passed=$((passed + 1))
    return
  fi
  failed=$((failed + 1))
  printf '\nFAILED (exit code %d): %s\n' "$2" "$1"
  tail -60 "$log/output"
}

# over SPREAD [VARIABLE=VALUE...] PROGRAM [arguments]: the program must end well.
over() {
  local spread=$1 settings=()
  shift
  while [[ $1 == *=* ]]; do
    settings+=("$1")
    shift
  done
  local program=$bin/$1 code=0
  shift
  if [[ ! -x $program ]]; then
    echo "$program is not built" >"$log/output"
    verdict "${program##*/}" 1
    return
  fi
  in_time env ${settings[@]+"${settings[@]}"} "$here/run.sh" --ranks "$spread" --timeout 300 -- "$program" "$@" || code=$?
  verdict "$spread ${settings[*]-} ${program##*/} $*" "$code"
}

spread() {
  over "$1" tests/mpi_bootstrap
  over "$1" hello_alltoallv
  over "$1" DAVIT_TEST_CYCLES=100 tests/communicator_mpi_test
  over "$1" DAVIT_TEST_CYCLES=100 DAVIT_SLOT_BYTES=4K DAVIT_SLOTS=1 DAVIT_PATH=slots tests/communicator_mpi_test
  over "$1" DAVIT_TEST_CYCLES=100 DAVIT_TEST_THREAD_LEVEL=funneled tests/communicator_mpi_test
  over "$1" tests/moe_mpi
  over "$1" tests/odd_calls_linked
  over "$1" tests/requests_linked
  over "$1" tests/others_linked
  if [[ -x $bin/davit_perf ]]; then
    local short=(--batches 50 --check)
    over "$1" moe_layer --device host --experts 8 --top-k 3 --hidden 64 --ffn 32 --tokens 200 --batches 2
    over "$1" davit_perf alltoallv --min 1000 --max 256K "${short[@]}"
    over "$1" davit_perf allgatherv --max 16K --skew zipf "${short[@]}"
    over "$1" davit_perf reduce_scatterv --max 16K --skew zipf "${short[@]}"
    over "$1" davit_perf moe --vs mpi --tokens 1,50 --hidden 72 --experts 9 --top-k 3 "${short[@]}"
  else
    echo "NOT BUILT, and so not tested over nodes: davit_perf, moe_layer"
  fi
}

# same_bits SPREAD...: all of the same number of ranks, the first the one to compare with.
same_bits() {
  local spread code
  rm -f "$log/first"
  for spread in "$@"; do
    over "$spread" tests/nodes_spread
    grep '^bits ' "$log/output" >"$log/bits" || true
    code=0
    if [[ ! -s $log/bits ]]; then
      code=1
    elif [[ ! -e $log/first ]]; then
      cp "$log/bits" "$log/first"
    else
      diff "$log/first" "$log/bits" >"$log/output" || code=1
    fi
    verdict "the bits of $spread are those of $1" "$code"
  done
}

# cut link SPREAD
cut() {
  local code=0
  in_time bash "$here/cut.sh" "${bin%/bin}" "$@" || code=$?
  verdict "cut: $*" "$code"
}

# A node without room for the segments: every rank of the job is told so, and by figures. Several times: the rows of the
# others come before or after a rank finds out itself.
small_memory() {
  local code=0 ended=4 told=4 run
  for ((run = 0; run < 6 && ended == 4 && told == 4; ++run)); do
    # shellcheck disable=SC2016 # for the shell of each rank
    in_time env DAVIT_TIMEOUT=10 "$here/run.sh" --ranks 2+2 --shm 1:1m --timeout 40 -- \
      sh -c '"$0"; echo "code $?"' "$bin/hello_alltoallv" || true
    ended=$(grep -c '^code 3$' "$log/output" || true)
    told=$(grep -c 'too full for shared memory: needed [0-9]* bytes' "$log/output" || true)
  done
  if ((ended != 4 || told != 4)); then code=1; fi
  verdict "little /dev/shm on one node: 4 ranks must be told, $told were; $ended ended with 3" "$code"
}

for part in "$@"; do
  case $part in
    bits)
      same_bits 4 2+2 3+1 1+3 1+1+1+1 2+1+1
      same_bits 8 4+4 2+2+2+2 5+3
      ;;
    failures)
      cut link 1+1
      cut link 2+2
      cut link 3+1
      small_memory
      ;;
    *+*) spread "$part" ;;
    *) echo "error: part '$part' must be a spread of ranks, bits or failures" >&2; exit 2 ;;
  esac
done
printf '%d passed, %d failed over nodes: %s\n' "$passed" "$failed" "$*"
((failed == 0))
