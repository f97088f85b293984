#!/bin/sh
# Counts the bytes that kernels move between caches and their instructions, and writes the table:
# traffic.sh [OUT]. BUILD as for make. First it checks the simulation against callgrind's and counts
# instructions, on nets small enough for a minute: valgrind computes each lane of a fused
# multiply-add by a call. Without OUT it stops there.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
work=$build/traffic/counts
rm -rf "$work"
mkdir -p "$work/checked"
say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$1" >&2; }
cat >"$work/gpt.json" <<'JSON'
{"name": "small-gpt", "model": {"family": "gpt2", "vocab_size": 3000, "n_positions": 128, "n_embd": 192, "n_layer": 1, "n_head": 3, "resid_pdrop": 0.0,
 "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "data": {"kind": "synthetic"}, "batch": 1, "sequence": 128, "steps": 1, "seed": 1, "optimizer": {"name": "adamw", "lr": 1e-5}}
JSON
cat >"$work/resnet.json" <<'JSON'
{"name": "small-resnet", "model": {"family": "resnet", "block": "bottleneck", "units": [1, 1, 1], "width": 32, "stem": "imagenet", "classes": 100,
 "image": [64, 64, 3]}, "data": {"kind": "synthetic"}, "batch": 1, "steps": 1, "seed": 1, "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}
JSON
say "the simulation against callgrind's"
"$build/tests/bench/traffic_bench" --kernels avx2 --as-callgrind "$work/gpt.json" "$work/resnet.json" >"$work/checked.tsv"
# Writes one dump for every row of a step.
valgrind --tool=callgrind --callgrind-out-file="$work/checked/dump" --instr-atstart=no --dump-line=no --cache-sim=yes --I1=32768,8,64 --D1=65536,4,64 --LL=262144,8,64 \
  "$build/tests/bench/instructions_bench" --kernels avx2 --as-callgrind "$work/gpt.json" "$work/resnet.json" >"$work/checked.log" 2>&1 || { cat "$work/checked.log" >&2; exit 1; }
tests/bench/traffic.py check "$work/checked.tsv" "$work/checked"
[ "${1:-}" ] || exit 0

for kernels in avx512 avx2 neon; do
  say "lines that the kernels of $kernels move"
  "$build/tests/bench/traffic_bench" --kernels "$kernels" >"$work/$kernels.tsv"
done
tests/bench/traffic.py table "$work/page.md" "$work/checked.tsv" "$work/checked" "$work/avx512.tsv" "$work/avx2.tsv" "$work/neon.tsv"
tests/bench/traffic_measured.py "$work/page.md" tests/bench/pages/ROOFLINE.md
mv "$work/page.md" "$1"
say "$1"
