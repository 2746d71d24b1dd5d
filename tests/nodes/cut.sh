#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cut.sh BUILD link|kill RANKS: see cut.cpp. mpirun may hang, so the ranks' own words and exit codes are what counts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1/bin/tests/nodes_cut how=$2 spread=$3
ranks=$((spread))
[[ -x $program ]] || { echo "$program is not built" >&2; exit 1; }
folder=$(mktemp -d)
job=
trap '[[ -z $job ]] || kill "$job" 2>/dev/null || true; rm -rf "$folder"' EXIT
trap 'exit 143' TERM INT HUP

# Without --enable-recovery mpirun ends all ranks when the first has ended.
# shellcheck disable=SC2016 # for the shell of each rank
"$here/run.sh" --ranks "$spread" --timeout 60 --mpirun --enable-recovery -- sh -c \
  '"$@"; echo $? >"$2/code.$OMPI_COMM_WORLD_RANK"' sh "$program" "$folder" "$how" >"$folder/output" 2>&1 &
job=$!
ended() { compgen -G "$folder/code.*" | wc -l; }
while kill -0 "$job" 2>/dev/null && (($(ended) < ranks)); do sleep 0.2; done
if (($(ended) < ranks)); then
  code=0
  wait "$job" || code=$?
  if ((code == 77)); then cat "$folder/output" >&2; exit 77; fi
fi

status=0
for ((rank = 0; rank < ranks; ++rank)); do
  said=$(cat "$folder/$rank" 2>/dev/null || echo "nothing")
  code=$(cat "$folder/code.$rank" 2>/dev/null || echo "none")
  expected=3
  if [[ $how == kill ]] && ((rank == ranks - 1)); then expected=137 said="ok"; fi
  if [[ $said != ok* || $code != "$expected" ]]; then
    echo "rank $rank, exit code $code (must be $expected), said: $said" >&2
    status=1
  elif [[ -n ${VERBOSE-} ]]; then
    echo "rank $rank, exit code $code, said: $said"
  fi
done
if ((status)); then tail -40 "$folder/output" >&2; fi
exit "$status"
