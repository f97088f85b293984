#!/usr/bin/env bash
# Runs every fuzz target given over RUNS inputs (a million) that it makes from those in tests/fuzz/corpus.
# An input that reaches more of the code is written to FOUND ($BUILD/fuzz/corpus), a crash to $BUILD/fuzz/findings. KEEP=1 then adds
# to tests/fuzz/corpus the fewest of FOUND that reach all that was reached. SEED=1 makes the same inputs each time.
# Usage: tests/fuzz/run_fuzz.sh BINARY...
set -eu
BUILD=${BUILD:-build}; RUNS=${RUNS:-1000000}; SEED=${SEED:-0}; KEEP=${KEEP:-}
kept=tests/fuzz/corpus; found=${FOUND:-$BUILD/fuzz/corpus}; findings=$BUILD/fuzz/findings
mkdir -p "$findings"

for target in "$@"; do
  name=$(basename "$target" _fuzz)
  corpus=$found/$name log=$findings/$name.log
  case $name in bytes) longest=32 ;; idx) longest=120 ;; tensors | safetensors) longest=400 ;; profile) longest=500 ;; *) longest=1024 ;; esac
  [ -d "$kept/$name" ] || { echo "fuzz $name: put an input that it accepts into $kept/$name" >&2; exit 1; }
  mkdir -p "$corpus"
  echo "fuzz $name: $RUNS inputs of up to $longest bytes"
  nice -n 10 "$target" -runs="$RUNS" -seed="$SEED" -max_len=$longest -timeout=100 -rss_limit_mb=2048 -print_funcs=0 -print_final_stats=1 \
    -artifact_prefix="$findings/$name-" "$corpus" "$kept/$name" 2>"$log" \
    || { tail -n 40 "$log" >&2; echo "fuzz $name: found an input, in $findings" >&2; exit 1; }
  ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  [ "${ran:-0}" -ge "$RUNS" ] || { tail -n 40 "$log" >&2; echo "fuzz $name: ended after ${ran:-no} inputs" >&2; exit 1; }
  echo "  $ran inputs run, $(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log") places of the code reached"
  [ -z "$KEEP" ] || "$target" -merge=1 -use_counters=0 -max_len=$longest "$kept/$name" "$corpus" 2>>"$log"
done
