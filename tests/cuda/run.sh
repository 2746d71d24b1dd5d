#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

usage() {
  cat <<'USAGE'
usage: tests/cuda/run.sh [--memcheck] [--no-limits] [ctest arguments]

Builds the tests of the CUDA backend alone, for the GPU in this machine, runs them, and prints what the links give
(davit_perf limits). Nothing is installed: where CLI11 and nlohmann-json are not, their headers are looked for in .carry.
--memcheck: also the kernels under compute-sanitizer (memcheck; racecheck where they share memory). --no-limits: no measurements.
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
cd "$davit_root"
davit_configure_for_gpu "$build" -DDAVIT_BUILD_TESTS=ON -DDAVIT_BUILD_EXAMPLES=ON
targets=(davit_cuda_tests)
for program in davit_perf moe_layer; do
  if davit_has_target "$build" $program; then targets+=($program); fi
done
cmake --build "$build" --target "${targets[@]}"

bad=0
say "tests"
ctest --test-dir "$build" -R '^(cuda_|litmus|davit_perf\.|moe_layer\.)' --verbose ${pass[@]+"${pass[@]}"} |
  grep -vE 'Test command|Working Directory|Environment variables|^ *[0-9]+: +[A-Z_]+=|\[ RUN|\[       OK' || bad=1

if ((memcheck)); then
  say "kernels under compute-sanitizer"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      timeout 400 compute-sanitizer --tool $tool --error-exitcode 9 "$build/bin/tests/cuda_kernels" \
        --gtest_filter='-*SumsRowsOfAllTypes' --gtest_brief=1 || bad=1
    done
    timeout 400 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/tests/cuda_words" \
      --gtest_filter='*ExchangesWithItself*' --gtest_brief=1 || bad=1
  else
    echo "compute-sanitizer not found: NOT checked"
  fi
fi
if ((limits)); then
  if ! davit_has_gpu; then
    say "NO GPU HERE: the links are NOT measured"
  elif davit_has_target "$build" davit_perf; then
    davit_mpirun_gpus 2 "$build/bin/davit_perf" limits --device cuda || bad=1
  else
    say "davit_perf is not built here (see $build/configure.log): the links are NOT measured"
  fi
fi
exit $bad
