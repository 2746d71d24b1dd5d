#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

usage() {
  cat <<'USAGE'
usage: tests/cuda/run.sh [--memcheck] [--no-limits] [ctest arguments]

Builds the tests of the CUDA backend alone, for the GPU in this machine, runs them, and prints what the links give.
Nothing is installed. --memcheck: also the kernels under compute-sanitizer. --no-limits: no measurements.
USAGE
}

memcheck=0 limits=1 pass=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --memcheck) memcheck=1 ;;
    --no-limits) limits=0 ;;
    *) pass+=("$1") ;;
  esac
  shift
done

davit_find_nvcc || die "nvcc not found"
build=$davit_root/build/cuda-tests
mkdir -p "$build"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true)
cd "$davit_root"
say "configure and build for compute capability ${capability:-90}"
cmake --preset cuda-release -B "$build" -DDAVIT_BUILD_TESTS=ON -DDAVIT_BUILD_EXAMPLES=OFF \
  -DCMAKE_CUDA_ARCHITECTURES="${capability:-90}" >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 3; }
cmake --build "$build" --target davit_cuda_tests

bad=0
say "tests"
ctest --test-dir "$build" -R '^(cuda_|litmus)' --verbose ${pass[@]+"${pass[@]}"} |
  grep -vE 'Test command|Working Directory|Environment variables|^ *[0-9]+: +[A-Z_]+=|\[ RUN|\[       OK' || bad=1

if ((memcheck)); then
  say "kernels under compute-sanitizer"
  if command -v compute-sanitizer >/dev/null; then
    timeout 400 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/tests/cuda_kernels" \
      --gtest_filter='-*SumsRowsOfAllTypes' --gtest_brief=1 || bad=1
    timeout 400 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/tests/cuda_words" \
      --gtest_filter='*ExchangesWithItself*' --gtest_brief=1 || bad=1
  else
    echo "compute-sanitizer not found: NOT checked"
  fi
fi
if ((limits)); then
  # Not davit_mpirun: binding is part of what is measured, and nothing is here.
  flags=(--allow-run-as-root --oversubscribe --bind-to none)
  if ! mpirun --version 2>&1 | grep -Eq 'Open MPI|OpenRTE'; then flags=(); fi
  mpirun "${flags[@]}" -n 2 "$build/bin/tests/link_limits" || [[ $? == 77 ]] || bad=1
fi
exit $bad
