#!/bin/bash
# Times the compile-time proof of synthetic plans in g++ and clang++, the parse alone beside it, and shows a fault's message.
# Here because DESIGN 3 promises seconds; run from the repository root: tests/bench/proof_bench.sh [ROWS...]
# It must not need a planner: proof_plan.cpp makes the plans.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CXX:-g++} -std=c++20 -O1 -I. tests/bench/proof_plan.cpp -o "$work/proof_plan"

seconds() {  # of user time
  local TIMEFORMAT=%U
  { time "$@" >"$work/log" 2>&1; } 2>&1
}

for rows in "${@:-20000}"; do
  "$work/proof_plan" "$rows" >"$work/plan.h"
  sed 's/^inline constexpr Verdict.*//; s/^static_assert.*//' "$work/plan.h" >"$work/parse.h"
  for what in parse plan; do echo "#include \"$work/$what.h\"" >"$work/$what.cpp"; done
  for compiler in g++ clang++; do
    command -v $compiler >/dev/null || { echo "$compiler is not installed: not measured"; continue; }
    case $compiler in
      g++) limits="-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000" ;;
      *) limits="-fconstexpr-steps=2000000000" ;;
    esac
    parse=$(seconds $compiler -std=c++20 $limits -I. -fsyntax-only "$work/parse.cpp")
    plan=$(seconds $compiler -std=c++20 $limits -I. -fsyntax-only "$work/plan.cpp")
    echo "$compiler $($compiler -dumpversion): plan of $rows rows: $plan s, of which $parse s to read it"
  done
done
"$work/proof_plan" 1200 faulty >"$work/plan.h" 2>/dev/null
if ${CXX:-g++} -std=c++20 -fconstexpr-ops-limit=4000000000 -I. -fsyntax-only "$work/plan.cpp" 2>"$work/message"; then
  echo "a faulty plan compiled" >&2
  exit 1
fi
grep -o 'PlanIsSafe<[^>]*>' "$work/message" | head -1
