#!/usr/bin/env bash
# Runs each given fuzz target on RUNS inputs (default: a million). The inputs are derived from two
# parts of tests/fuzz/corpus: a folder of hand-written inputs, and an archive of inputs found by
# earlier runs. The archive is a small set that reaches the same code as all found inputs. An input
# that reaches more code is written to FOUND (default: $BUILD/fuzz/corpus), an input that crashes
# the target to $BUILD/fuzz/findings. If KEEP is set, the archive is then rewritten. With SEED=1,
# every run makes equal inputs.
# Usage: tests/fuzz/run_fuzz.sh BINARY...
set -eu
BUILD=${BUILD:-build}; RUNS=${RUNS:-1000000}; SEED=${SEED:-0}; KEEP=${KEEP:-}
written=tests/fuzz/corpus; found=${FOUND:-$BUILD/fuzz/corpus}; findings=$BUILD/fuzz/findings
mkdir -p "$findings"

# Writes the archive of a target: a small set of found inputs. Together with the hand-written inputs
# it reaches the same code as all found inputs.
keep() {  # TARGET NAME LONGEST
  local fewest; fewest=$(mktemp -d)
  cp "$written/$2"/* "$fewest"
  "$1" -merge=1 -use_counters=0 -max_len="$3" "$fewest" "$found/$2" 2>>"$findings/$2.log"
  (cd "$written/$2" && ls) | (cd "$fewest" && xargs rm -f)
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -C "$fewest" -c . | gzip -9n >"$written/$2.tar.gz"
  echo "  $(ls "$fewest" | wc -l) of $(ls "$found/$2" | wc -l) kept, $(wc -c <"$written/$2.tar.gz") bytes"
  rm -r "$fewest"
}

for target in "$@"; do
  name=$(basename "$target" _fuzz)
  corpus=$found/$name log=$findings/$name.log
  case $name in bytes) longest=32 ;; idx) longest=120 ;; tensors | safetensors) longest=400 ;; profile) longest=500 ;; pt2) longest=3000 ;; tokenizer) longest=7500 ;; *) longest=1024 ;; esac
  [ -d "$written/$name" ] || { echo "fuzz $name: put an input that it accepts into $written/$name" >&2; exit 1; }
  mkdir -p "$corpus"
  [ ! -f "$written/$name.tar.gz" ] || tar -xzf "$written/$name.tar.gz" -C "$corpus"
  echo "fuzz $name: $RUNS inputs of up to $longest bytes"
  nice -n 10 "$target" -runs="$RUNS" -seed="$SEED" -max_len=$longest -timeout=100 -rss_limit_mb=2048 -print_funcs=0 -print_final_stats=1 \
    -artifact_prefix="$findings/$name-" "$corpus" "$written/$name" 2>"$log" \
    || { tail -n 40 "$log" >&2; echo "fuzz $name: found an input, in $findings" >&2; exit 1; }
  ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  [ "${ran:-0}" -ge "$RUNS" ] || { tail -n 40 "$log" >&2; echo "fuzz $name: ended after ${ran:-no} inputs" >&2; exit 1; }
  echo "  $ran inputs run, $(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log") places of the code reached"
  [ -z "$KEEP" ] || keep "$target" "$name" $longest
done
