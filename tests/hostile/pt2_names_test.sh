#!/bin/sh
# Names in a .pt2 file that would be code in plan.h are texts there, and the parameters keep them.
# BUILD names the output folder, CXX the compiler.
set -eu
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 tests/hostile/pt2_names_test.py "${BUILD:-build}/reprise" "$scratch"
