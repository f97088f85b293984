#!/usr/bin/env bash
# On a machine with a card: builds for it, judges every kernel, proves that no budget changes a bit.
# It also times whole steps and products next to PyTorch and cuBLASLt if they are installed. Writes
# tests/bench/pages/GPU_RESULTS.md. It takes less than nine minutes on a large card with 16
# processor cores and needs no network. `make gpu` runs it.
#   tests/bench/cards/gpu.sh [PART...]    build cases sanitizer identity steps profile products;
#                                         default: all, in this order
# Each part has a time limit. A part that fails is named, its output until then is in the file, and
# the other parts go on. A part that is run by itself replaces its own section. Without a card the
# script prints one line and does not change the file. Exit status 0 if all parts pass. BUILD and
# NVCC as for make. Packages may be anywhere that CPATH, LIBRARY_PATH and LD_LIBRARY_PATH name.
set -u
cd "$(dirname "$0")/../../.." || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS
export BUILD=${BUILD:-build}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
results=tests/bench/pages/GPU_RESULTS.md
work=$BUILD/tests/bench/cards/gpu
cores=$(nproc)
all_parts="build cases sanitizer identity steps profile products"
total_seconds=530
skipped=3  # exit status of a part that lacks what it measures

limit_of() { case $1 in build) echo 240 ;; cases) echo 90 ;; sanitizer) echo 80 ;; identity) echo 120 ;; steps) echo 200 ;; profile) echo 120 ;; products) echo 45 ;; esac; }
title_of() {
  case $1 in
    build) echo "Build" ;;
    cases) echo "Every kernel on every case" ;;
    sanitizer) echo "compute-sanitizer" ;;
    identity) echo "The same bits at every budget" ;;
    steps) echo "Whole steps" ;;
    profile) echo "Where a step's time goes" ;;
    products) echo "Products beside cuBLASLt" ;;
  esac
}

# ---- the card ----

ask_card() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
find_card() {
  architecture=$(ask_card compute_cap | tr -d '. ')
  card="$(ask_card name), driver $(ask_card driver_version)"
  case $architecture in
    [1-9][0-9] | [1-9][0-9][0-9]) ;;
    *)  # a Jetson's nvidia-smi does not report its card
      [ -e /dev/nvhost-gpu ] || return 1
      architecture=87 card=$(tr -d '\0' </proc/device-tree/model 2>/dev/null || echo "a Jetson")
      ;;
  esac
}

# ---- the parts: each prints its section's text, and fails if any of its checks fails ----

run_build() {
  local cards=$BUILD/tests/bench/cards missing= start=$SECONDS
  local programs="$cards/gpu_cases $cards/gpu_steps $cards/gpu_products"
  # shellcheck disable=SC2086
  make -k -s -j"$cores" BUILD="$BUILD" NVCC="$NVCC" CUDA_ARCHITECTURES="$architecture" "$BUILD/libreprise-cuda.a" "$BUILD/reprise" $programs >"$work/build.log" 2>&1
  for made in $BUILD/libreprise-cuda.a $BUILD/reprise $programs; do [ -e "$made" ] || missing="$missing $(basename "$made")"; done
  echo "Compiled for sm_$architecture in $((SECONDS - start)) s on $cores cores."
  [ -z "$missing" ] && return
  echo "Not built:$missing. $(grep -m 1 -iE 'error|make: missing' "$work/build.log" | cut -c 1-300)"
  return 1
}

# Count passed, failed and skipped tests in gtest's logs, also in the log of a process that did not
# finish.
count_lines() { cat -- "${@:2}" 2>/dev/null | grep -cE "$1"; }
passed_in() { count_lines '^\[       OK \] ' "$@"; }
failed_in() { count_lines '^\[  FAILED  \] .* ms\)$' "$@"; }
skipped_in() { count_lines '^\[  SKIPPED \] .* ms\)$' "$@"; }

run_cases() {
  local program=$BUILD/tests/bench/cards/gpu_cases shards=$cores logs=$work/cases failed unfinished=0
  [ -x "$program" ] || { echo "gpu_cases is not built."; return 1; }
  rm -rf "$logs" && mkdir -p "$logs"
  for ((i = 0; i < shards; ++i)); do
    (GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i timeout -k 5 $((limit - 8)) "$program" >"$logs/$i.log" 2>&1; echo $? >"$logs/$i.status") &
  done
  wait
  for ((i = 0; i < shards; ++i)); do grep -q '^\[==========\].*ran' "$logs/$i.log" || unfinished=$((unfinished + 1)); done
  failed=$(failed_in "$logs"/*.log)
  echo "**$(passed_in "$logs"/*.log) passed, $failed failed**, $(skipped_in "$logs"/*.log) skipped; f32 and bf16; against the double-precision reference, again with other memory and"
  echo "addresses for the same bits, in place, accumulated, and with the CPU's bits where both round once. $shards processes, $unfinished of which did not come to their end."
  echo
  grep -hE '^\[  FAILED  \] .* ms\)$' "$logs"/*.log | sed 's/^\[  FAILED  \] \(.*\), where.*(\([0-9]* ms\))$/- failed: `\1`/' | head -n 40
  if [ "$unfinished" != 0 ]; then tail -qn 1 "$logs"/*.log | grep -v '^worst' | sort | uniq -c | sort -rn | head -n 3 | sed 's/^ *\([0-9]*\) /- last words of \1: /'; fi
  if grep -qh '^worst ' "$logs"/*.log; then
    printf '\n| kernel | stored | largest error, in units of its tolerance |\n|---|---|---|\n'
    awk '/^worst / && (!($2 " " $3 in most) || $4 > most[$2 " " $3]) { most[$2 " " $3] = $4 }
         END { for (key in most) { split(key, part, " "); printf "| %s | %s | %s |\n", part[1], part[2], most[key] } }' "$logs"/*.log | sort
  fi
  [ "$failed" = 0 ] && [ "$unfinished" = 0 ] && [ "$(passed_in "$logs"/*.log)" -gt 0 ]
}

# The number of shards is odd because cases in f32 and bf16 alternate: each shard gets both.
run_sanitizer() {
  local program=$BUILD/tests/bench/cards/gpu_cases logs=$work/sanitizer
  local shards=31 each=$(((cores + 2) / 3)) faults=0 sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || { echo "compute-sanitizer is not installed here: nothing was run."; return $skipped; }
  [ -x "$program" ] || { echo "gpu_cases is not built."; return 1; }
  rm -rf "$logs" && mkdir -p "$logs"
  for tool in memcheck racecheck synccheck; do
    # shellcheck disable=SC2016
    seq 0 $((shards - 1)) | timeout -k 5 $((limit - 10)) xargs -P "$each" -I{} env GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX={} sh -c \
      '"$1" --tool "$2" --error-exitcode 9 "$3" --gtest_filter="Card/CardKernel.*" >"$4" 2>&1; echo $? >"$4.status"' - "$sanitizer" "$tool" "$program" "$logs/$tool.{}.log" &
  done
  wait
  echo "Each tool takes the cases of the reference in $shards parts, as many of them as $((limit - 10)) s allow. To memcheck the arena is one allocation; what lies between"
  echo "arguments is watched by the judges' own guards."
  printf '\n| tool | parts without fault | parts with one | cases passed | cases failed |\n|---|---|---|---|---|\n'
  for tool in memcheck racecheck synccheck; do
    local good bad
    good=$(cat "$logs/$tool".*.status 2>/dev/null | grep -cx 0) bad=$(cat "$logs/$tool".*.status 2>/dev/null | grep -cvx 0)
    echo "| $tool | $good of $shards | $bad | $(passed_in "$logs/$tool".*.log) | $(failed_in "$logs/$tool".*.log) |"
    if [ "$bad" != 0 ] || [ "$good" = 0 ]; then faults=1; fi
  done
  echo
  grep -hE '^=+ (Invalid|Error|Race reported|Barrier error|Program hit|Target application)|^gpu_cases:|Device not supported' "$logs"/*.log | sort | uniq -c | sort -rn | head -n 8 | sed 's/^ *\([0-9]*\) /- \1 times: /'
  return $faults
}

# Prints the recipes' "card" for this card, which decides how sums are split.
card_size() { "$BUILD/reprise" doctor --json 2>/dev/null | sed -n 's/.*"size": "\([a-z]*\)".*/\1/p'; }
run_identity() { python3 tests/bench/cards/gpu_train.py identity; }
run_steps() { python3 tests/bench/cards/gpu_train.py steps; }
run_profile() { python3 tests/bench/cards/gpu_train.py profile; }
run_products() { "$BUILD/tests/bench/cards/gpu_products"; }

# ---- the file ----

# Prints a part's text; a line longer than 140 columns is broken before column 120. Rows of tables
# stay whole.
narrow() {
  awk '!/^[|]/ { while (length($0) > 140 && match(substr($0, 1, 119), / [^ ]*$/)) { print substr($0, 1, RSTART - 1); $0 = substr($0, RSTART + 1) } } { print }' "$1"
}

write_results() {
  local part
  {
    cat <<'TEXT'
# The CUDA kernels on a card

`make gpu` (`tests/bench/cards/gpu.sh`) writes this page on a machine with a card. Every section names the card, its driver,
CUDA, the day and what failed.

## Proved without a card

| what | where | by |
|---|---|---|
| no register spills, machine code as its golden | nvcc: sm_80, sm_87 (Orin), sm_90 | `make cuda` (`cuda_machine_code_test.sh`) |
| every kernel on every case against a double-precision reference; any order of threads, the same bits | CPU, fibres | `make test` (1) |
| every product in all three models of a tensor core's sums, within tolerance | CPU, fibres | `make cuda-models` |
| every kernel as PTX, with the bits that it has under fibres | CPU, an interpreter | `make test` (`ptx_test.cpp`) |
| small nets train: the same bits at every budget, planned = measured, losses near the CPU's | CPU, fibres | `make test` (2) |

The tests are in `tests/ports`: (1) `cuda_kernels_test.cpp` and its neighbours; (2) `cuda_training_test.cpp`.
TEXT
    for part in $all_parts; do
      [ -e "$work/$part.md" ] || continue
      echo
      narrow "$work/$part.md"
    done
  } >"$results.new" && mv "$results.new" "$results"
}

# Runs a part as a process group of its own, so that its time limit ends all of its processes.
do_part() {
  local part=$1 limit status start=$SECONDS left=$((total_seconds - SECONDS)) text=$work/$1.text cuda commit why
  limit=$(limit_of "$part")
  if [ "$left" -lt "$limit" ]; then limit=$left; fi
  if [ "$limit" -lt 15 ]; then echo "Not run: the time was over." >"$text"; status=124; else
    timeout -k 5 "$limit" tests/bench/cards/gpu.sh --part "$part" "$architecture" "$limit" >"$text" 2>"$work/$part.err"
    status=$?
  fi
  cuda=$("$NVCC" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p') commit=$(git rev-parse --short HEAD 2>/dev/null)
  {
    printf '## %s\n\n%s, sm_%s, CUDA %s, %s%s; %d s.\n\n' "$(title_of "$part")" "$card" "$architecture" "${cuda:-unknown}" "$(date -u +%F)" "${commit:+, commit $commit}" $((SECONDS - start))
    cat "$text"
    case $status in
      0 | "$skipped") ;;
      124 | 137) printf '\n**Failed:** %s was not done after %d s; above stands what it had.\n' "$part" "$limit" ;;
      *) why=$(tail -n 1 "$work/$part.err" | cut -c 1-300) && printf '\n**Failed:** %s: %s\n' "$part" "${why:-see above}" ;;
    esac
  } >"$work/$part.md"
  write_results
  if [ "$status" = 0 ]; then echo "gpu: $part: done in $((SECONDS - start)) s"; return; fi
  if [ "$status" = "$skipped" ]; then echo "gpu: $part: skipped: $(tail -n 1 "$text")"; return; fi
  echo "gpu: $part: FAILED after $((SECONDS - start)) s: $(grep -v '^$' "$work/$part.md" | tail -n 1)"
  return $status
}

if [ "${1:-}" = --part ]; then
  architecture=$3 limit=$4
  CARD=$(card_size) "run_$2"
  exit
fi
for part in "$@"; do
  case " $all_parts " in *" $part "*) ;; *) echo "gpu: no part is called $part; there are: $all_parts" >&2; exit 2 ;; esac
done
find_card && export CUDA_ARCHITECTURES=$architecture || { echo "gpu: no NVIDIA card here: nvidia-smi finds none; $results stays as it is" >&2; exit 1; }
command -v "$NVCC" >/dev/null || { echo "gpu: no nvcc here: install the CUDA toolkit, 12 or later, or name it by NVCC=; $results stays as it is" >&2; exit 1; }
mkdir -p "$work"
[ $# -gt 0 ] || { set -- $all_parts && rm -f "$work"/*.md; }
failed=
for part; do
  if [ "$part" = cases ]; then CARD=$(card_size) setsid timeout 200 python3 tests/bench/cards/gpu_train.py warm >/dev/null 2>&1 & warm=$!; fi
  if [ "$part" = steps ] && [ -n "${warm:-}" ]; then kill -- "-$warm" 2>/dev/null; wait "$warm" 2>/dev/null; fi
  do_part "$part" || failed="$failed $part"
done
if [ -n "${warm:-}" ]; then kill -- "-$warm" 2>/dev/null; fi
if [ -n "$failed" ]; then echo "gpu: failed:$failed; the rest is in $results, logs in $work" >&2; exit 1; fi
echo "gpu: all parts done in $SECONDS s; see $results"
