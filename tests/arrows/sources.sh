#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sources.sh ROOT: what the compiler cannot refuse. Includes by "../", system headers that belong to few files, long files,
# headers that would not be installed.
set -euo pipefail
shopt -s globstar nullglob
cd "$1"
library=({include,bootstrap,transports,runtime}/**/*.{h,hpp,hpp.in,cpp,inc,cu,cuh})
bad=0
complain() { echo "$@"; bad=1; }

# includers HEADER: files of the library that include it.
includers() { grep -lE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$1" "${library[@]}" || true; }

for file in $(includers '[^">]*\.\./'); do complain "$file: includes by ../"; done

for file in $(includers 'mpi\.h[>"]'); do
  case $file in
    include/davit/mpi.hpp | include/davit/davit_mpi.h | bootstrap/mpi_* | transports/mpi/* | runtime/factory.cpp | \
      runtime/interposer/*) ;;
    *) complain "$file: mpi.h is for the MPI bootstrap, the wire and the factory" ;;
  esac
done
for file in $(includers 'davit/mpi\.hpp[>"]'); do
  case $file in
    bootstrap/mpi_* | runtime/factory.cpp | runtime/interposer/*) ;;
    *) complain "$file: davit/mpi.hpp is for the MPI bootstrap, the factory and users" ;;
  esac
done
for file in $(includers 'cuda[^/">]*\.h[>"]'); do
  [[ $file == transports/cuda/* ]] || complain "$file: CUDA belongs to transports/cuda"
done
hwloc=$(includers 'hwloc[^">]*\.h[>"]')
[[ $(wc -w <<<"$hwloc") == 1 ]] || complain "hwloc is for exactly one file, here: ${hwloc:-none}"

for file in "${library[@]}" {tests,examples}/**/*.{h,hpp,c,cpp,cu,sh}; do
  lines=$(wc -l <"$file")
  ((lines <= 400)) || complain "$file: $lines lines, above 400"
  head -3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || complain "$file: no SPDX line at the top"
done
for header in include/davit/*.{h,hpp}; do
  grep -q "^ *davit/${header##*/}\b" include/CMakeLists.txt || complain "$header: not listed in include/CMakeLists.txt"
done
exit $bad
