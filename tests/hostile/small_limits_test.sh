#!/bin/sh
# Tests that a process with a small limit of memory or stack ends with one line and status 1, not by
# a signal. BUILD is the output folder, as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the sanitizers need more of both"; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect WORDS COMMAND...: requires one line on stderr that contains WORDS, and status 1
expect() {
  words=$1
  shift
  status=0
  "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
  if [ "$status" = 1 ] && [ "$(wc -l <"$scratch/err")" = 1 ] && grep -q "$words" "$scratch/err"; then return; fi
  echo "status $status of $*, whose stderr must be one line with: $words" >&2
  cat "$scratch/err" >&2
  exit 1
}

with_stack() { (ulimit -s "$1" && shift && exec "$@"); }
with_memory() { (ulimit -v "$1" && shift && exec "$@"); }

recipe=tools/recipes/resnet20-fashion.json
expect 'stack may not grow to 256 KiB' with_stack 64 "$build/reprise" audit "$recipe"
with_stack 256 "$build/reprise" audit "$recipe" >"$scratch/audit"
grep -q peak "$scratch/audit" || { echo "256 KiB of stack do not suffice for an audit" >&2; exit 1; }

python3 -c "print('[' + ','.join(['[[],[]]'] * 1500000) + ']')" >"$scratch/large.json"
expect 'reprise: reading .*large.json: the memory does not suffice' with_memory 150000 "$build/reprise" recipe --check "$scratch/large.json"
