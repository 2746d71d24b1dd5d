#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# unlinked.sh BINARY...: none of them needs CUDA's libraries to start.
set -euo pipefail
bad=0
for binary in "$@"; do
  if needed=$(LC_ALL=C readelf -d "$binary" | grep -E 'NEEDED.*lib(cuda|cudart|nvidia)'); then
    echo "$binary does not start without CUDA:"
    echo "$needed"
    bad=1
  fi
done
exit $bad
