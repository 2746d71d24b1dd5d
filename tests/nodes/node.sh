#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# node.sh NODE command [arguments]: runs a command on a node of inside.sh, that is with its network and host name, with
# processes, /dev/shm, boot id and machine id of its own. Called as `rsh` it is what mpirun takes for ssh.
set -euo pipefail
self=$(readlink -f "${BASH_SOURCE[0]}")
if [[ ${0##*/} == rsh ]]; then
  while [[ $1 == -* ]]; do shift; done
  node=$1
  shift
  exec bash "$self" "$node" /bin/sh -c "$*" # as ssh: joined, for the shell there
fi
if [[ $1 != --entered ]]; then
  exec ip netns exec "$1" unshare --uts --ipc --mount --pid --fork --kill-child --mount-proc bash "$self" --entered "$@"
fi

node=$2
shift 2
hostname "$node"
size=2g
if [[ ${davit_shm-} == "${node#node}":* ]]; then size=${davit_shm#*:}; fi
mount -t tmpfs -o "size=$size" davit-nodes /dev/shm
mount --bind /run/hosts /etc/hosts
hash=$(md5sum <<<"$node")
echo "${hash:0:8}-${hash:8:4}-${hash:12:4}-${hash:16:4}-${hash:20:12}" >"/run/boot_id.$node"
mount --bind "/run/boot_id.$node" /proc/sys/kernel/random/boot_id
if [[ -e /etc/machine-id ]]; then
  echo "${hash:0:32}" >"/run/machine-id.$node"
  mount --bind "/run/machine-id.$node" /etc/machine-id
fi
exec "$@"
