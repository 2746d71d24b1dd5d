#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# refused.sh SOURCE HEADER COMPILER <include flags of the room> -- <include flags of who sees everything>
set -euo pipefail
export LC_ALL=C
source=$1 header=$2 compiler=$3
shift 3
room=()
while [[ $1 != -- ]]; do room+=("$1"); shift; done
shift
check=("$compiler" -std=c++20 -fsyntax-only -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX)

# First the control: the header is there, so that its absence below means something. One that needs mpi.h only there.
if [[ $header == tests/* ]]; then
  [[ -e $(dirname "$0")/../../$header ]] || { echo "there is no $header"; exit 1; }
elif ! said=$("${check[@]}" "$@" "$source" 2>&1); then
  echo "$header does not compile even where it may be seen:"; echo "$said"; exit 1
fi
if said=$("${check[@]}" "${room[@]}" "$source" 2>&1); then
  echo "$header compiles where it must not be seen"; exit 1
fi
grep -Eq "fatal error: '?$header'?( file not found|: No such file)" <<<"$said" || { echo "$said"; exit 1; }
