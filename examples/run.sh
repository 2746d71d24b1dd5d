#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

usage() {
  cat <<'USAGE'
usage: examples/run.sh [-n RANKS] [--preset PRESET] [moe_layer arguments]

Installs what is missing (apt), builds the library and the examples, and runs hello_alltoallv and moe_layer under mpirun
with RANKS ranks. Further arguments go to moe_layer. PRESET: cuda-release where nvcc and a GPU are found, else cpu-release.
With cuda-release moe_layer uses the GPUs, and RANKS is their number by default, but at least 2; more ranks than GPUs share
them, which is slow. Without, the default is 4.
USAGE
}

ranks=
preset=
pass=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    -n) ranks=${2:?-n needs a number}; shift ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    *) pass+=("$1") ;;
  esac
  shift
done
if ! [[ ${ranks:-1} =~ ^[1-9][0-9]*$ ]]; then usage >&2; exit 2; fi

davit_packages "${davit_build_packages[@]}"
preset=${preset:-$(davit_default_preset)}
# An earlier tests/run.sh in the same folder gets its tests back at its next run.
davit_build "$preset" -DDAVIT_BUILD_TESTS=OFF -DDAVIT_BUILD_EXAMPLES=ON

gpus=0
if [[ $preset == cuda-* ]]; then gpus=$(davit_gpus); fi
if ((gpus)); then ranks=${ranks:-$((gpus > 2 ? gpus : 2))}; fi
ranks=${ranks:-4}
if ((gpus && ranks > gpus)); then
  say "$ranks ranks, $gpus GPU(s): they share, with DAVIT_ALLOW_SHARED_GPU=1"
  export DAVIT_ALLOW_SHARED_GPU=1
fi

bin=$davit_root/build/$preset/bin
davit_mpirun "$ranks" "$bin/hello_alltoallv"
davit_mpirun "$ranks" "$bin/moe_layer" ${pass[@]+"${pass[@]}"}
