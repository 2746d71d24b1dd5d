#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kernel_symbols.sh NM OBJECTS...: objects of wide kernels define no weak function.
set -euo pipefail
nm=$1
shift
bad=0
for object in "$@"; do
  [[ $object == *kernels_avx* ]] || continue
  if weak=$("$nm" -C --defined-only "$object" | grep ' W '); then
    echo "$(basename "$object") defines weak functions; make them static, always_inline, or members of an unnamed namespace:"
    echo "$weak"
    bad=1
  fi
done
exit $bad
