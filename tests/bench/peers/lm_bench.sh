#!/bin/bash
# Compares SmolLM2-135M-Instruct in Reprise and in PyTorch with peft, in turns: seconds per step and
# memory, then the validation loss of both after the same 40 steps. `make bench-lm` calls it;
# RESULTS.md, "Language models", has its figures.
# Usage: lm_bench.sh [--turns N] [--json FOLDER] [lora] [full]
# --json writes the results into FOLDER/KIND-time.json and FOLDER/KIND-loss.json.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
turns=3
json=
if [ "${1:-}" = --turns ]; then turns=$2; shift 2; fi
if [ "${1:-}" = --json ]; then json=$2; shift 2; fi
[ $# -gt 0 ] || set -- lora full

gguf=$build/data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
work=$build/lm-peer
python=$build/parity-venv/bin/python
mkdir -p "$work"
for rows in chatterbot chatterbot-eval; do
  $python tests/bench/peers/lm_rows.py "$gguf" "$build/data/$rows.jsonl" "$work/$rows-rows.jsonl"
done

status=0
for kind in "$@"; do
  train="$build/$("$build/reprise" name "tests/bench/peers/lm-$kind.json")/train --steps {steps} --threads {threads} --log {log} --quiet"
  [ "$kind" = full ] || train="$train --init-adapter {adapter}"
  peer=($python tests/bench/peers/lm_peer.py "$gguf" "tests/bench/peers/lm-$kind.json" "$work/chatterbot-rows.jsonl"
    --ours "$train")
  echo "== $kind: time and memory, $turns turns of 6 steps each"
  "${peer[@]}" --rounds "$turns" --steps 6 ${json:+--json "$json/$kind-time.json"}
  echo "== $kind: validation loss after 40 steps"
  "${peer[@]}" --steps 40 --eval-rows "$work/chatterbot-eval-rows.jsonl" ${json:+--json "$json/$kind-loss.json"} || status=1
done
exit $status
