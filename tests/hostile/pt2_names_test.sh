#!/bin/sh
# Tests that names in a .pt2 file that would be code in plan.h are only texts there, and that the
# parameters keep them. BUILD names the output folder, CXX the compiler.
set -eu
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 tests/hostile/pt2_names_test.py "${BUILD:-build}/reprise" "$scratch"
