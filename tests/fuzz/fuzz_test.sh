#!/bin/sh
# Tests every parser under the sanitizers with a few thousand inputs, which are derived from
# tests/fuzz/corpus. The parser must accept or refuse each input. Every run tests equal inputs.
# `make test` builds the fuzzers first; `make fuzz` tests a million inputs. BUILD is the output
# folder, as for make.
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
