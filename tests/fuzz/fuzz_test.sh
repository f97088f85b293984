#!/bin/sh
# Every parser answers or refuses, under the sanitizers: a few thousand inputs each, made from those that tests/fuzz/corpus keeps.
# The inputs are the same each time. `make test` builds the fuzzers first; `make fuzz` runs a million. BUILD as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the fuzzers bring their own sanitizers"; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

targets=
for source in tests/fuzz/*_fuzz.cpp; do
  target=$build/fuzz/$(basename "$source" .cpp)
  [ -x "$target" ] || { echo "fuzz: $target is not there; make $target" >&2; exit 1; }
  targets="$targets $target"
done
BUILD=$build FOUND=$scratch RUNS=${RUNS:-4000} SEED=1 tests/fuzz/run_fuzz.sh $targets
