#!/bin/sh
# Tests emulated processors without AVX-512 and without AVX2, and programs linked without BLIS: a
# net trains on each, to nearly the same loss. Reason: CPUID decides which kernels run, and test
# machines have all features. BUILD names the output folder, CXX the compiler; processors that
# cannot be emulated here are reported and left out.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
out=$build/old-cpu
fail() { echo "old_cpu: $1" >&2; exit 1; }
sanitizers=
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then sanitizers='-fsanitize=address,undefined'; fi
case $("$compiler" --version) in
  *clang*) proof=-fconstexpr-steps=2000000000 ;;
  *) proof='-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000' ;;
esac

mkdir -p "$out"
cat >"$out/recipe.json" <<'END'
{"name": "old-cpu", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 16, "stem": "cifar", "classes": 10,
 "image": [10, 9, 3]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 6, "seed": 5, "optimizer": {"name": "sgd", "lr": 0.01}}
END
"$build/reprise" plan "$out/recipe.json" -o "$out" 2>"$out/plan.txt" || { cat "$out/plan.txt" >&2; exit 1; }
$compiler -std=c++20 -O1 -I. -I"$out" $proof $sanitizers -c tests/ports/boards/other_cpu/train_plan.cpp \
  -o "$out/train_plan.o"
$compiler $sanitizers "$out/train_plan.o" "$build/libreprise.a" -o "$out/with-blis" -Wl,-u,_ZN7reprise14blis_gemm_tileEv -lblis -lpthread
$compiler $sanitizers "$out/train_plan.o" "$build/libreprise.a" -o "$out/without-blis" -lpthread

kernels() { sed -n 's/^kernels //p' "$1"; }
# judge TITLE KERNELS FILE: the run used these kernels, its loss fell, and is close to the loss of
# this machine.
judge() {
  kernels "$3" | grep -qE "^cpu/$2\$" || fail "$1: kernels $(kernels "$3"), expected $2"
  paste "$out/here" "$3" | awk '
    $1 == "loss" { ++steps; apart = $2 - $5; if (apart < 0) apart = -apart; if (!(apart <= 2e-5 * $2)) bad = 1; if (steps == 1) first = $5; last = $5 }
    END { exit !(steps == 6 && !bad && last < first) }' || { paste "$out/here" "$3" >&2; fail "$1: the losses"; }
  echo "$1: $(kernels "$3")"
}
"$out/with-blis" 6 2 >"$out/here" || fail "does not train"
judge "as it is" '.*' "$out/here"
"$out/without-blis" 6 2 >"$out/log" || fail "does not train without BLIS"
judge "without BLIS" '(portable|neon|avx2|avx512)-.*' "$out/log"

if [ "$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 >/dev/null 2>&1 || [ -n "$sanitizers" ]; then
  echo "skipped: no emulation of older processors (x86-64 alone, package qemu-user, no sanitizers)"
  exit 0
fi
# emulated TITLE PROCESSOR KERNELS PROGRAM: trains with one and two threads on the emulated
# processor.
emulated() {
  for threads in 1 2; do
    qemu-x86_64 -cpu "$2" "$out/$4" 6 $threads >"$out/log-$threads" 2>"$out/words" || { cat "$out/words" >&2; fail "$1: does not train"; }
  done
  cmp -s "$out/log-1" "$out/log-2" || fail "$1: other bits with 2 threads"
  judge "$1" "$3" "$out/log-1"
}
emulated "no AVX (Nehalem)" Nehalem '[^/]*/baseline' with-blis
emulated "no AVX, no BLIS (Nehalem)" Nehalem 'portable-6x8/baseline' without-blis
emulated "AVX without AVX2 (SandyBridge)" SandyBridge 'portable-6x8/baseline' without-blis
emulated "AVX2 (Haswell)" Haswell '[^/]*/avx2' with-blis
emulated "AVX2, no BLIS (Haswell)" Haswell 'avx2-6x16/avx2' without-blis
