#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# info.sh DAVIT_INFO MACHINES MPIRUN...: the program over all machines, good and bad, and under mpirun.
set -euo pipefail
info=$1 machines=$2
shift 2
mpirun=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
complain() { echo "$@"; bad=1; }
says() { grep -qF -- "$2" <<<"$1" || complain "'$2' is missing in: $1"; }

for file in "$machines"/*.xml; do
  code=0
  said=$("$info" --xml "$file" --json 2>&1) || code=$?
  if [[ $file == */bad_* ]]; then
    [[ $code == 3 ]] || complain "$file: exit code $code, should be 3"
    says "$said" "davit_info: davit: machine file '$file' cannot be read: "
    continue
  fi
  [[ $code == 0 ]] || complain "$file: exit code $code"
  for key in '"gpus"' '"numa_nodes"' '"root_complexes"' '"ranks"' '"pairs"'; do says "$said" "$key"; done
  "$info" --xml "$file" --svg "$work/picture.svg" --ranks 3
  picture=$(<"$work/picture.svg")
  says "$picture" '<svg xmlns="http://www.w3.org/2000/svg"'
  says "$picture" '</svg>'
  for rank in 0 1 2; do grep -q "rank.*\b$rank\b" <<<"$picture" || complain "$file: rank $rank is not in the picture"; done
done

said=$("$info" --xml "$machines/two_sockets_eight_gpus.xml")
says "$said" "0000:94:00.0"
says "$said" "same-switch"
said=$("$info" --xml "$machines/laptop.xml" --json)
says "$said" '"pci": "0000:01:00.0"'
says "$said" '"root_complex": "0000:00"'

code=0
"$info" --ranks 3 >"$work/usage" 2>&1 || code=$?
[[ $code == 2 ]] || complain "--ranks without --xml: exit code $code, should be 2"
code=0
"$info" --xml "$machines/laptop.xml" --svg "$work/no/such/folder.svg" 2>"$work/refused" || code=$?
[[ $code == 3 ]] || complain "--svg into nowhere: exit code $code, should be 3"
says "$(<"$work/refused")" "--svg '$work/no/such/folder.svg'"

says "$("$info" --json)" '"rank": 0'
said=$("${mpirun[@]}" -n 3 "$info" --json)
says "$said" '"rank": 2'
[[ $(grep -c '"relation"' <<<"$said") == 6 ]] || complain "3 ranks have 6 pairs"
exit $bad
