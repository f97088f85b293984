#!/bin/bash
# Times planning, proving and compiling the 990-layer net of Chen et al. (lib/PLANNING.md, section
# 7), with g++ and clang++. lib/DESIGN.md, section 3, promises seconds. Run it from the repository
# root after `make`: tests/bench/proof_bench.sh [BUDGET...]
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries="build/libtools.a build/libreprise.a -Wl,-u,_ZN7reprise14blis_gemm_tileEv -lblis -lz -ljpeg -licuuc -lonig -lpthread"

cat >"$work/recipe.json" <<'JSON'
{"name": "resnet990", "model": {"family": "resnet", "block": "bottleneck", "units": [15, 120, 180, 15], "stem": "imagenet",
 "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 32, "steps": 2, "seed": 1,
 "gradient_release": true, "optimizer": {"name": "sgd", "lr": 1e-6, "momentum": 0.9}, "feature_map_budget": "7GiB"}
JSON

seconds() {  # prints the elapsed seconds of a command
  local TIMEFORMAT=%R
  { time "$@" >"$work/log" 2>&1; } 2>&1 || { cat "$work/log" >&2; return 1; }
}

for budget in "${@:-7GiB}"; do
  sed -i "s/\"feature_map_budget\": \"[^\"]*\"/\"feature_map_budget\": \"$budget\"/" "$work/recipe.json"
  plan=$(seconds build/reprise plan "$work/recipe.json" -o "$work")
  echo "$budget: planned in $plan s, $(wc -c <"$work/plan.h") bytes of plan.h"
  echo "#include \"$work/plan.h\"" >"$work/plan.cpp"
  sed 's/^inline constexpr Verdict.*//; s/^static_assert.*//' "$work/plan.h" >"$work/parse.h"
  echo "#include \"$work/parse.h\"" >"$work/parse.cpp"
  for compiler in g++ clang++; do
    command -v $compiler >/dev/null || { echo "$compiler is not installed: not measured"; continue; }
    case $compiler in
      g++) limits="-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000" ;;
      *) limits="-fconstexpr-steps=2000000000" ;;
    esac
    flags="-std=c++20 -I. -I$work $limits"
    parse=$(seconds $compiler $flags -fsyntax-only "$work/parse.cpp")
    proof=$(seconds $compiler $flags -fsyntax-only "$work/plan.cpp")
    whole=$(seconds $compiler $flags -O2 tools/train.cpp $libraries -o "$work/train")
    echo "$compiler $($compiler -dumpversion): read in $parse s, read and proved in $proof s; compiled, proved and linked in $whole s"
  done
done
