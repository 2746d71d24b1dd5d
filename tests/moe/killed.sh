#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# killed.sh <segment mode> <mpirun and its arguments...> -- <program and its launcher...>: a job of four, one of which is
# killed. The three others must say "ok", and nothing may be left in the directory of their segments.
set -euo pipefail
mode=$1
shift
mpirun=()
while [[ $1 != -- ]]; do
  mpirun+=("$1")
  shift
done
shift

directory=$(mktemp -d /dev/shm/davit-test-killed.XXXXXX)
trap 'rm -rf "$directory"' EXIT
# mpirun itself ends with the code of the killed rank.
output=$(DAVIT_SHM_DIR=$directory DAVIT_SEGMENT=$mode "${mpirun[@]}" --enable-recovery -n 4 "$@" 2>&1) || true

status=0
for rank in 0 1 3; do
  if ! grep -q "^survivor $rank: ok$" <<<"$output"; then
    echo "survivor $rank did not say that all is well" >&2
    status=1
  fi
done
if grep -q '^survivor 2' <<<"$output"; then
  echo "rank 2 was not killed" >&2
  status=1
fi
left=$(ls -A "$directory")
if [[ -n $left ]]; then
  echo "left in the directory of segments: $left" >&2
  status=1
fi
if ((status)); then echo "$output" >&2; fi
exit "$status"
