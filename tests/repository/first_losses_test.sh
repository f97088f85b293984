#!/bin/sh
# Tests that the first losses of two trainings are those of tests/golden/first_losses.txt, and that
# the documents state them: tools/guides/recipes.md for its ResNet-20, tests/bench/pages/CHEN.md for
# one block of each of its net's stages. Each runs with a small core's kernels, which have the same
# bits on every processor, and with this processor's own, if the golden has them. If this test
# fails, a kernel, the order of sums, the initial weights or the data's order have changed: measure
# the documents' figures again, then renew the golden (BLESS=1) and the lines that quote it. BUILD
# as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build} golden=tests/golden/first_losses.txt
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "first_losses: $1" >&2; exit 1; }
[ -d /usr/share/datasets/fashion-mnist ] || { echo "skipped: dataset-fashion-mnist is not installed"; exit 0; }

python3 - "$scratch" <<'PYTHON'
import json, sys
resnet = json.load(open("tools/recipes/resnet20-fashion.json"))
del resnet["budget"]
resnet.update(schedule="none", evaluate_every=0)
chen = {"model": {"family": "resnet", "block": "bottleneck", "units": [1, 1, 1, 1], "width": 64, "stem": "imagenet", "classes": 1000,
                  "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 1, "schedule": "none", "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}
for name, recipe in (("resnet20-fashion", resnet), ("chen-1-1-1-1", chen)):
  for core in ("large", "small"):
    json.dump({**recipe, "name": name, "core": core}, open(f"{sys.argv[1]}/{name}-{core}.json", "w"))
PYTHON

for name in resnet20-fashion chen-1-1-1-1; do
  for core in small large; do
    "$build/reprise" plan "$scratch/$name-$core.json" --binary -o "$scratch/plan" 2>"$scratch/words" || fail "$(cat "$scratch/words")"
    "$build/reprise" train "$scratch/plan/plan.bin" --steps 2 --log "$scratch/log.jsonl" 2>"$scratch/words" || fail "$(cat "$scratch/words")"
    kernels=$(sed -n 's/^training .*, kernels \([^,]*\),.*/\1/p' "$scratch/words")
    echo "$name $kernels $(sed 's/.*"loss": \([0-9.]*\),.*/\1/' "$scratch/log.jsonl" | tr '\n' ' ' | sed 's/ $//')"
    rm "$scratch/log.jsonl"
  done
done >"$scratch/here"
if [ -n "${BLESS:-}" ]; then
  cut -d' ' -f1,2 "$scratch/here" >"$scratch/keys"
  { grep -vFf "$scratch/keys" "$golden" 2>"$scratch/words" || true; cat "$scratch/here"; } | sort >"$scratch/golden"
  cp "$scratch/golden" "$golden"
fi

compared=0
while read -r name kernels losses; do
  stated=$(sed -n "s|^$name $kernels ||p" "$golden")
  [ -n "$stated" ] || continue  # a processor on which nobody has measured yet
  [ "$stated" = "$losses" ] || fail "$name on $kernels: $losses, not $stated as in $golden"
  compared=$((compared + 1))
done <"$scratch/here"
[ "$compared" -ge 2 ] || fail "a small core's kernels are everywhere, and $golden has not their losses"

# A document quotes a line of the golden: "first losses on KERNELS are LOSS and LOSS".
quotes() {  # FILE NAME: prints NAME for each line that FILE quotes
  grep "^$2 " "$golden" | while read -r name kernels first second; do
    ! tr '\n' ' ' <"$1" | grep -qF "first losses on \`$kernels\` are $first and $second" || echo "$name"
  done
}
[ -n "$(quotes tools/guides/recipes.md resnet20-fashion)" ] || fail "tools/guides/recipes.md states no first losses of $golden"
[ -n "$(quotes tests/bench/pages/CHEN.md chen-1-1-1-1)" ] \
  || fail "tests/bench/pages/CHEN.md states no first losses of $golden"
echo "$compared trainings begin with the losses that the documents state"
