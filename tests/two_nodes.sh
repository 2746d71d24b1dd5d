#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/two_nodes.sh [BUILD]: makes two nodes on this machine, runs the suite over them with mpirun, takes them down. Builds
# nothing; BUILD is a build folder, default build/cpu-release. See nodes/README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec bash "$here/nodes/suite.sh" "${1:-$here/../build/cpu-release}" 1+1 2+2 3+1 1+3 4+4 bits failures
