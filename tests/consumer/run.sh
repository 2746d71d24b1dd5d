#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh CMAKE GENERATOR BUILD_DIR COMPILER: installs the build into a fresh prefix; builds and runs project/ against it twice.
set -euo pipefail
cmake=$1 generator=$2 build=$3 compiler=$4
project=$(cd "$(dirname "$0")" && pwd)/project
work=$build/consumer
rm -rf "$work"
mkdir -p "$work"

echo "== install"
"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"
# The package must work from where it ends up, not only from where it was installed.
mv "$work/prefix" "$work/moved"
prefix=$work/moved

echo "== find_package"
"$cmake" -G "$generator" -S "$project" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler"
"$cmake" --build "$work/cmake"
"$work/cmake/consumer"

echo "== pkg-config"
pc=$(find "$prefix" -name davit.pc)
libdir=$(dirname "$(dirname "$pc")")
static=()
[[ -e $libdir/libdavit.a ]] && static=(--static)
flags() { PKG_CONFIG_PATH=$(dirname "$pc") pkg-config "$@" davit; }
# Unquoted, as everybody writes it.
"$compiler" -std=c++20 $(flags --cflags) "$project/main.cpp" $(flags --libs ${static[@]+"${static[@]}"}) -o "$work/plain"
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$work/plain"
