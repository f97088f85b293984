#!/bin/sh
# Builds lib for AArch64 and runs it under qemu: every kernel with its judges, and two nets under
# different plans and threads. The baseline level, also a small core's, must have the bits that it
# has here. Reason: most boards are AArch64 and most test machines are not. A Cortex-A53 has only
# ARMv8.0. A Cortex-A76 replaces the Cortex-A78AE of a Jetson Orin, which the emulator lacks: both
# have products of f16 and integers, and none of bf16. BUILD names the output folder, CXX the host's
# compiler; the test is skipped if the packages are missing.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
host_compiler=${CXX:-g++}
compiler=aarch64-linux-gnu-g++
out=$build/arm64
fail() { echo "neon: $1" >&2; exit 1; }
for tool in $compiler qemu-aarch64 aarch64-linux-gnu-objdump; do
  command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool here (packages g++-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user)"; exit 0; }
done
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the sanitizers do not reach the emulator"; exit 0; fi

emulate_as() { cpu=$1; shift; qemu-aarch64 -cpu "$cpu" -L /usr/aarch64-linux-gnu "$@"; }
emulate() { emulate_as cortex-a53 "$@"; }
proof_of() { case $1 in *clang*) echo "-fconstexpr-steps=2000000000" ;; *) echo "-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000" ;; esac; }

# 1. The library and the judges, by the Makefile's own rules. This target has no BLIS: the library's
# own tiles are used.
judges=$(ls tests/ops/*.cpp tests/ops/families/*.cpp | grep -v '_test\.cpp$')
objects=$(for judge in $judges tools/files/formats/ggml_blocks.cpp; do echo "$out/${judge%.cpp}.o"; done)
programs=$(for program in judge_kernels print_kernel_bits; do echo "$out/tests/ports/boards/other_cpu/$program.o"; done)
# board_test.sh, which at its end removes the tools' objects, waits until theirs is linked here.
exec 9>"$build/arm64.lock"
flock 9
env MAKEFLAGS= make -s -j"$(nproc)" BUILD="$out" CXX=$compiler SANITIZE= "$out/libreprise.a" $objects $programs >"$build/arm64.log" 2>&1 9>&- \
  || { cat "$build/arm64.log" >&2; exit 1; }
for program in $programs; do $compiler "$program" $objects "$out/libreprise.a" -o "$out/$(basename "$program" .o)" -lpthread; done
flock -u 9
! grep -i warning "$build/arm64.log" >&2 || fail "the library compiles with warnings"

# 2. The register tiles' main loops: no sum in memory, and the counts of tests/bench/pages/NEON.md
# if this is the compiler that the page names.
count_loops() {  # OBJECT FUNCTION...
  object=$1; shift
  aarch64-linux-gnu-objdump -dC --no-show-raw-insn "$out/lib/cpu/gemm/$object" | tests/ports/boards/neon_counts.py "$@"
}
if command -v python3 >/dev/null 2>&1; then
  { count_loops gemm_neon_tile.o run_neon 'run_neon_of<12u>' 'run_neon_of<8u>' 'run_neon_of<4u>' run_neon_rows && count_loops gemm_bf16_neon_tile.o run_neon_pairs; } >"$out/loops" || fail "a tile spills, or is none"
  ! printf '0 <f>:\n 10:\tldr\tq0, [sp, #16]\n 14:\tfmla\tv0.4s, v1.4s, v2.4s\n 18:\tb.ne\t10 <f+0x10>\n' | \
    tests/ports/boards/neon_counts.py f >/dev/null 2>&1 \
    || fail "a spill is not seen"
  if grep -qF "g++ $($compiler -dumpfullversion)" tests/bench/pages/NEON.md; then
    page=tests/bench/pages/NEON.md
    while read -r row; do grep -qxF "$row" $page || fail "$page does not have: $row"; done <"$out/loops"
  fi
else
  echo "no python3 here: the tiles' loops are not counted"
fi

# 3. Every kernel on every case, and products of bf16: by BFMMLA if the system reports it, else
# widened.
judge() {  # CPU STORAGE PARTS: runs the first two of PARTS parts in parallel
  emulate_as "$1" "$out/judge_kernels" "$2" 0 "$3" >"$out/judged" & first=$!
  emulate_as "$1" "$out/judge_kernels" "$2" 1 "$3" >"$out/judged-too" || { wait $first || true; cat "$out/judged-too" >&2; fail "kernels are wrong on $1"; }
  wait $first || { cat "$out/judged" >&2; fail "kernels are wrong on $1"; }
  sed "s/^/$1: /" "$out/judged" "$out/judged-too"
}
# A quarter of the cases on the older core: the reference, in double, takes most of the emulator's
# time.
judge cortex-a53 f32 8
judge cortex-a76 f32 32
judge cortex-a76 bf16 16
! grep -q '+bf16' "$out/judged" || fail "bf16 is multiplied on a processor that cannot"
judge max bf16 12
grep -q '/neon+bf16: ' "$out/judged" || fail "bf16 is not multiplied on a processor that can"

# The judge of rounding, if GoogleTest's sources are installed.
gtest=/usr/src/googletest/googletest
if [ -f $gtest/src/gtest-all.cc ]; then
  mkdir -p "$out/gtest"
  for source in $gtest/src/gtest-all.cc $gtest/src/gtest_main.cc tests/ops/bf16_pairs_test.cpp; do
    $compiler -std=c++20 -O2 -I. -I$gtest -I$gtest/include -c $source -o "$out/gtest/$(basename $source).o"
  done
  $compiler "$out"/gtest/*.o "$out/tests/ops/emulated_amx.o" "$out/libreprise.a" -o "$out/bf16_pairs" -lpthread
  emulate_as max "$out/bf16_pairs" --gtest_filter='PairTile.*:*NothingElse*/machine:*RoundedOnce/machine:*Odd*/machine:*Infinities*/machine' \
    >"$out/pairs.log" || { cat "$out/pairs.log" >&2; fail "pairs of bf16"; }
fi

# 4. Training: planned here, proved and compiled for AArch64. The same bits under any plan and
# threads; close to the host's.
optimizer() { echo "\"optimizer\": {\"name\": \"$1\", \"lr\": $2}"; }
resnet="\"model\": {\"family\": \"resnet\", \"block\": \"basic\", \"units\": [1, 1, 1], \"width\": 16, \"stem\": \"cifar\", \"classes\": 10, \"image\": [10, 9, 3]},
  \"batch\": 4, $(optimizer sgd 0.01)"
gpt="\"model\": {\"family\": \"gpt2\", \"vocab_size\": 31, \"n_positions\": 16, \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 2},
  \"batch\": 2, \"sequence\": 16, $(optimizer adamw 0.003)"
plan_of() {  # NET FIELDS SCHEDULE
  mkdir -p "$out/$1-$3"
  echo "{\"name\": \"$1\", $2, \"data\": {\"kind\": \"synthetic\"}, \"steps\": 6, \"seed\": 5, \"schedule\": \"$3\"}" >"$out/$1-$3/recipe.json"
  "$build/reprise" plan "$out/$1-$3/recipe.json" $4 -o "$out/$1-$3" 2>"$out/$1-$3/plan.txt" || { cat "$out/$1-$3/plan.txt" >&2; exit 1; }
}
program_of() {  # COMPILER LIBRARY PLAN PROGRAM
  $1 -std=c++20 -O1 -I. -I"$3" $(proof_of "$1") tests/ports/boards/other_cpu/train_plan.cpp "$2" -o "$4" -lpthread \
    || fail "$3/plan.h does not compile for $1"
}
smallest_budget() { "$build/reprise" fit "$1" --budget 1GiB --json | tr ',{' '\n\n' | sed -n 's/.*"smallest_budget": *\([0-9]*\).*/\1/p'; }
for net in resnet gpt; do
  eval "fields=\$$net"
  plan_of $net "$fields" none ""
  plan_of $net "$fields" optimal "--budget $(smallest_budget "$out/$net-none/recipe.json")"
  for schedule in none optimal; do program_of $compiler "$out/libreprise.a" "$out/$net-$schedule" "$out/$net-$schedule/train"; done
  program_of "$host_compiler" "$build/libreprise.a" "$out/$net-none" "$out/$net-none/train-here"
  "$out/$net-none/train-here" 6 2 >"$out/$net.here" || fail "$net does not train here"
  emulate "$out/$net-none/train" 6 1 >"$out/$net.there" || fail "$net does not train"
  for run in "none 2" "optimal 1" "optimal 3"; do
    emulate "$out/$net-${run% *}/train" 6 "${run#* }" >"$out/$net.again" || fail "$net does not train ($run threads)"
    cmp -s "$out/$net.there" "$out/$net.again" || { diff "$out/$net.there" "$out/$net.again" >&2; fail "$net: other bits ($run threads)"; }
  done
  paste "$out/$net.here" "$out/$net.there" | awk '
    $1 == "loss" { ++steps; apart = $2 - $5; if (apart < 0) apart = -apart; if (apart > 2e-5 * $2) bad = 1; if (steps == 1) first = $5; last = $5 }
    END { exit !(steps == 6 && !bad && last < first) }' || { paste "$out/$net.here" "$out/$net.there" >&2; fail "$net: losses are not the host's, or do not fall"; }
  echo "$net: $(sed -n 's/^kernels //p' "$out/$net.there"), 6 steps, 4 runs with the same bits, losses within 2e-5 of $(sed -n 's/^kernels //p' "$out/$net.here")"
done

# 5. The baseline level fuses only where its source requests it: its kernels and a small core's have
# the same bits here and there.
$host_compiler -std=c++20 -O1 -I. tests/ports/boards/other_cpu/print_kernel_bits.cpp \
  "$build/libjudges.a" "$build/libtools.a" "$build/libreprise.a" \
  -o "$out/print_kernel_bits-here" -lz -lpthread
"$out/print_kernel_bits-here" baseline 4 >"$out/bits.here"
emulate "$out/print_kernel_bits" baseline 4 >"$out/bits.there"
for set in cpu cpu-small; do [ "$(grep -c "^$set/" "$out/bits.there")" -gt 500 ] || fail "of $set at most 500 cases were run"; done
cmp -s "$out/bits.here" "$out/bits.there" || {
  diff "$out/bits.here" "$out/bits.there" | sed -n 's/^< \(.*\) .*/\1/p' | head -n 20 >&2
  fail "the baseline level has other bits than here"
}
echo "baseline: the same bits as here in $(wc -l <"$out/bits.there") cases"
for recipe in resnet8 ds-cnn deep-ae; do
  net=$out/small-$recipe
  mkdir -p "$net"
  "$build/reprise" plan tools/recipes/small/$recipe.json -o "$net" 2>"$net/plan.txt" || { cat "$net/plan.txt" >&2; exit 1; }
  program_of $compiler "$out/libreprise.a" "$net" "$net/train"
  program_of "$host_compiler" "$build/libreprise.a" "$net" "$net/train-here"
  "$net/train-here" 3 1 >"$net/here" || fail "$recipe does not train here"
  emulate "$net/train" 3 1 >"$net/there" || fail "$recipe does not train"
  [ "$(grep -c '^loss' "$net/there")" -eq 3 ] || fail "$recipe does not train three steps"
  cmp -s "$net/here" "$net/there" || { diff "$net/here" "$net/there" >&2; fail "$recipe: a small core has other bits"; }
  echo "$recipe: $(sed -n 's/^kernels //p' "$net/there"), 3 steps with the bits of this processor"
done

# A build that fuses elsewhere would have other bits, and is refused.
$compiler -std=c++20 -O2 -I. -ffp-contract=fast -c lib/cpu/cpu_machine.cpp -o "$out/fusing.o"
$compiler -std=c++20 -O1 -I. -I"$out/small-ds-cnn" $(proof_of $compiler) \
  tests/ports/boards/other_cpu/train_plan.cpp "$out/fusing.o" "$out/libreprise.a" \
  -o "$out/small-ds-cnn/fusing" -lpthread
! emulate "$out/small-ds-cnn/fusing" 1 1 >"$out/fusing.log" 2>&1 || fail "a build that fuses of its own accord is taken for a small core"
grep -q 'ffp-contract=off' "$out/fusing.log" || { cat "$out/fusing.log" >&2; fail "a build that fuses does not say so"; }
