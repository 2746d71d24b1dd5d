#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

usage() {
  cat <<'USAGE'
usage: tests/run.sh [--preset PRESET] [ctest arguments]

Installs what is missing (apt), configures, builds and tests. PRESET is one of CMakePresets.json; by default cuda-release
where nvcc and a GPU are found, else cpu-release. Further arguments go to ctest, for example -R alltoallv or -L threads.
USAGE
}

preset=
exclude=
pass=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --preset=*) preset=${1#*=} ;;
    -LE | --label-exclude) exclude=${2:?$1 needs a regular expression}; shift ;;
    *) pass+=("$1") ;;
  esac
  shift
done

davit_packages "${davit_build_packages[@]}" "${davit_test_packages[@]}"
preset=${preset:-$(davit_default_preset)}
davit_build "$preset" -DDAVIT_BUILD_TESTS=ON

if ! davit_has_gpu; then
  say "NO GPU HERE: the tests labelled gpu are SKIPPED"
  exclude=${exclude:+$exclude|}^gpu\$
elif [[ $preset != cuda-* ]]; then
  say "preset $preset has no CUDA backend: nothing is tested on the GPU"
fi
# A test has several ranks that wait for each other: a quarter of the cores at a time.
jobs=$(($(nproc) / 4))
if ((jobs < 2)); then jobs=2; fi
say "ctest, preset $preset"
cd "$davit_root"
ctest --preset "$preset" -j "$jobs" ${exclude:+-LE "$exclude"} ${pass[@]+"${pass[@]}"}
