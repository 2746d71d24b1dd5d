#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job over nodes that are made for it on this machine; see usage and README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'USAGE'
usage: tests/nodes/run.sh --ranks A+B[+...] [options] -- command [arguments]

Makes a node for each number, with so many ranks, and runs the command over them with mpirun. Needs root.
  --rate RATE       bandwidth of each node's link, as tc writes it: 1gbit
  --delay TIME      delay of each node's link one way: 50us (needs netem in the kernel)
  --shm NODE:SIZE   size of one node's /dev/shm, nodes from 0: 1:1m (default 2g)
  --timeout S       most seconds that the job may take (default 120)
  --mpirun "ARGS"   further arguments of mpirun, split at blanks
Exit code: mpirun's; 124 or 137 out of time; 77 where nodes cannot be made here.
USAGE
}
refuse() { printf 'error: %s\n' "$*" >&2; exit 2; }

limit=120
export davit_ranks='' davit_rate='' davit_delay='' davit_shm='' davit_mpirun_args=''
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    --ranks | --rate | --delay | --shm | --timeout | --mpirun) (($# > 1)) || refuse "$1 needs a value" ;;&
    --ranks) davit_ranks=$2 ;;
    --rate) davit_rate=$2 ;;
    --delay) davit_delay=$2 ;;
    --shm) davit_shm=$2 ;;
    --timeout) limit=$2 ;;
    --mpirun) davit_mpirun_args=$2 ;;
    *) refuse "unknown argument '$1'; see --help" ;;
  esac
  shift 2
done
[[ $davit_ranks =~ ^[1-9][0-9]*(\+[1-9][0-9]*)*$ ]] || refuse "--ranks is '$davit_ranks', must be like 2+2 or 3+1"
[[ $limit =~ ^[1-9][0-9]*$ ]] || refuse "--timeout is '$limit', must be whole seconds above 0"
[[ -z $davit_shm || $davit_shm =~ ^[0-9]+:[0-9]+[kmg]?$ ]] || refuse "--shm is '$davit_shm', must be like 1:1m"
(($#)) || refuse "no command; see --help"
export davit_limit=$limit

skip() { printf 'NODES ARE NOT TESTED HERE: %s\n' "$*" >&2; exit 77; }
((EUID == 0)) || skip "this needs root"
for tool in ip unshare setpriv mpirun; do
  command -v "$tool" >/dev/null || skip "$tool is not found (packages iproute2, util-linux, openmpi-bin)"
done
mpirun --version 2>&1 | grep -Eq 'Open MPI|OpenRTE' || skip "mpirun is not Open MPI's"
apart=(unshare --mount --net --ipc --pid --fork --kill-child --mount-proc)
why=$("${apart[@]}" mount -t tmpfs davit-nodes /run 2>&1) || skip "no namespaces here: $why"

# Nodes, links and files of a run live in these namespaces alone. They go with the first process in them, which dies with
# this script, however that ends.
die_with_parent=(setpriv --pdeathsig KILL)
"${die_with_parent[@]}" timeout -s KILL $((limit + 20)) "${die_with_parent[@]}" "${apart[@]}" \
  bash "$here/inside.sh" "$@" </dev/null &
child=$!
# SIGKILL: the others have no time to pass on what they get.
trap 'kill -KILL "$child" 2>/dev/null || true' EXIT
trap 'exit 143' TERM HUP
trap 'exit 130' INT
code=0
wait "$child" || code=$?
exit "$code"
