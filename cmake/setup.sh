# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by tests/run.sh, examples/run.sh and .ci/run: packages, presets, builds, mpirun. Debian 12 and Ubuntu 24.04.

davit_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 3; }

# What a build needs, and what the tests and programs need besides. An entry is command:package, or module.pc:package, or
# a package; one that is there already, from wherever, is left alone.
davit_build_packages=(cmake:cmake ninja:ninja-build g++:g++ pkg-config:pkg-config mpicc:libopenmpi-dev
  mpirun:openmpi-bin hwloc.pc:libhwloc-dev libcli11-dev nlohmann-json3-dev)
davit_test_packages=(libgtest-dev libbenchmark-dev ip:iproute2 unshare:util-linux)

davit_present() {
  case $1 in
    *.pc) command -v pkg-config >/dev/null && pkg-config --exists "${1%.pc}" ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# davit_packages ENTRY...: installs with apt what is missing; says so where it cannot.
davit_packages() {
  local entry missing=()
  for entry in "$@"; do
    if [[ $entry == *:* ]]; then
      davit_present "${entry%%:*}" || missing+=("${entry##*:}")
    else
      dpkg -s "$entry" 2>/dev/null | grep -q '^Status: .* installed' || missing+=("$entry")
    fi
  done
  ((${#missing[@]})) || return 0
  say "packages to install: ${missing[*]}"
  command -v apt-get >/dev/null || die "apt-get not found; install these (Debian's names) by hand: ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "neither root nor sudo; run as root: apt-get install ${missing[*]}"
    apt=(sudo "${apt[@]}")
  fi
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } ||
    die "apt-get could not install: ${missing[*]}"
}

davit_find_nvcc() {
  if ! command -v nvcc >/dev/null && [[ -x /usr/local/cuda/bin/nvcc ]]; then PATH=$PATH:/usr/local/cuda/bin; fi
  command -v nvcc >/dev/null
}
davit_has_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

davit_default_preset() { if davit_find_nvcc && davit_has_gpu; then echo cuda-release; else echo cpu-release; fi; }

# davit_build PRESET [cmake options]: configures and builds in build/PRESET.
davit_build() {
  local preset=$1
  shift
  davit_find_nvcc || true
  say "configure $preset${*:+ with $*}"
  (cd "$davit_root" && cmake --preset "$preset" "$@")
  say "build $preset"
  (cd "$davit_root" && cmake --build --preset "$preset")
}

# davit_mpirun RANKS PROGRAM [args]
davit_mpirun() {
  local ranks=$1 flags=()
  shift
  if mpirun --version 2>&1 | grep -Eq 'Open MPI|OpenRTE'; then
    flags=(--oversubscribe)
    if ((EUID == 0)); then flags+=(--allow-run-as-root); fi
  fi
  say "mpirun ${flags[*]} -n $ranks $*"
  mpirun "${flags[@]}" -n "$ranks" "$@"
}

# GPUs of this machine; 0 where there is no driver.
davit_gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }

# davit_configure_for_gpu FOLDER [cmake options]: a build with CUDA for this machine's GPU, nothing installed.
davit_configure_for_gpu() {
  local folder=$1 capability headers=()
  shift
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true)
  if [[ -d $davit_root/.carry ]]; then headers=(-DDAVIT_HEADERS_DIR="$davit_root/.carry"); fi
  mkdir -p "$folder"
  say "configure for compute capability ${capability:-90}"
  (cd "$davit_root" && cmake --preset cuda-release -B "$folder" -DCMAKE_CUDA_ARCHITECTURES="${capability:-90}" \
    ${headers[@]+"${headers[@]}"} "$@") >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log"; exit 3; }
}

# davit_has_target FOLDER TARGET
davit_has_target() { cmake --build "$1" --target help 2>/dev/null | grep -qE "(^|[ /])$2(:|\$| )"; }

# davit_mpirun_gpus RANKS PROGRAM [args]: unbound, since binding is part of what is measured. Ranks share a GPU where there
# are fewer.
davit_mpirun_gpus() {
  local ranks=$1 flags=()
  shift
  if mpirun --version 2>&1 | grep -Eq 'Open MPI|OpenRTE'; then
    flags=(--oversubscribe --bind-to none)
    if ((EUID == 0)); then flags+=(--allow-run-as-root); fi
  fi
  if ((ranks > $(davit_gpus))); then export DAVIT_ALLOW_SHARED_GPU=1; fi
  say "${DAVIT_ALLOW_SHARED_GPU:+DAVIT_ALLOW_SHARED_GPU=$DAVIT_ALLOW_SHARED_GPU }mpirun ${flags[*]} -n $ranks $*"
  mpirun "${flags[@]}" -n "$ranks" "$@"
}
