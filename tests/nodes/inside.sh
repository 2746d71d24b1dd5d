#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inside.sh command [arguments]: the part of run.sh that is in namespaces of its own: makes the nodes, runs the job. Files
# of the run are in /run, a tmpfs of these namespaces.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
IFS=+ read -ra ranks <<<"${davit_ranks:?}"
nodes=${#ranks[@]}
cannot() { printf 'NODES ARE NOT TESTED HERE: %s\n' "$*" >&2; exit 77; }

mount -t tmpfs davit-nodes /run
mkdir /run/sessions
echo '127.0.0.1 localhost' >/run/hosts
for ((i = 0; i < nodes; ++i)); do
  echo "192.0.2.$((i + 1)) node$i" >>/run/hosts
  echo "node$i slots=${ranks[i]}" >>/run/hostfile
  ip netns add "node$i"
  ip -n "node$i" link set lo up # mpirun hangs without
done

if ((nodes == 2)); then
  ip link add eth0 netns node0 type veth peer name eth0 netns node1
elif ((nodes > 2)); then
  ip link add bridge0 type bridge || cannot "the kernel has no bridges, which more than two nodes need"
  ip link set bridge0 up
  for ((i = 0; i < nodes; ++i)); do
    ip link add eth0 netns "node$i" type veth peer name "port$i"
    ip link set "port$i" master bridge0 up
  done
fi
for ((i = 0; nodes > 1 && i < nodes; ++i)); do
  ip -n "node$i" addr add "192.0.2.$((i + 1))/24" dev eth0
  ip -n "node$i" link set eth0 up
  at=root
  if [[ -n ${davit_rate-} ]]; then
    tc -n "node$i" qdisc add dev eth0 root handle 1: tbf rate "$davit_rate" burst 256kb latency 50ms
    at="parent 1:1"
  fi
  if [[ -n ${davit_delay-} ]]; then
    # shellcheck disable=SC2086 # one or two words
    tc -n "node$i" qdisc add dev eth0 $at netem delay "$davit_delay" limit 100000 ||
      cannot "--delay $davit_delay: the kernel has no netem"
  fi
done

# Each node takes all cores for its own: bound or spinning ranks would starve the other node's.
ln -s "$here/node.sh" /run/rsh
read -ra further <<<"${davit_mpirun_args-}"
job=(timeout -k 5 "$davit_limit" mpirun --allow-run-as-root --hostfile /run/hostfile --mca plm_rsh_agent /run/rsh
  --mca orte_tmpdir_base /run/sessions --bind-to none --mca mpi_yield_when_idle 1)
for variable in $(compgen -e DAVIT_) ASAN_OPTIONS TSAN_OPTIONS; do
  if [[ -v $variable ]]; then job+=(-x "$variable"); fi
done
exec bash "$here/node.sh" node0 "${job[@]}" ${further[@]+"${further[@]}"} "$@"
