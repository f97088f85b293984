#!/bin/sh
# Checks that kernels built by g++ and by clang write the same bits, on every case and at every
# vector level: the kernel set's id does not name the compiler. By default the other compiler builds
# only the kernels listed below and parses the rest, because clang needs over a minute for all;
# `make compilers` compares all of them. BUILD names the output folder, CXX the first compiler. The
# test is skipped if the other compiler is missing.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
kernels=${KERNELS:-elementwise optimizer layer_norm batch_norm grad_norm loss_head pair_loss preference embedding dropout rope unary conv_source gemm_tile}
fail() { echo "compilers: $1" >&2; exit 1; }
case $compiler in *clang*) others=g++ ;; *) others="clang++-14 clang++" ;; esac
for other in $others; do command -v "$other" >/dev/null 2>&1 && break; other=; done
if [ -z "$other" ]; then echo "skipped: no compiler beside $compiler here (package clang-14)"; exit 0; fi
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the sanitizers' build is compared without them"; exit 0; fi

out=$build/other-compiler
mkdir -p "$out"
make_quietly() { env MAKEFLAGS= flock "$build" make -s -j"$(nproc)" SANITIZE= "$@" >"$out/make.log" 2>&1 || { cat "$out/make.log" >&2; exit 1; }; }
printer=$build/tests/ports/boards/other_cpu/print_kernel_bits.o
make_quietly BUILD="$build" CXX="$compiler" "$build/libjudges.a" "$build/libtools.a" "$build/libreprise.a" "$printer"
if [ "$kernels" = all ]; then
  objects=$out/libreprise.a
else
  objects=$(for kernel in $kernels; do echo "$out/$(ls lib/cpu/*/"$kernel.cpp" | sed 's/cpp$/o/')"; done)
fi
make_quietly BUILD="$out" CXX="$other" $objects

for source in lib/*.cpp lib/cpu/*.cpp lib/cpu/*/*.cpp; do
  "$other" -std=c++20 -I. -w -fsyntax-only "$source" >"$out/words" 2>&1 || fail "$other does not take $source: $(head -n 3 "$out/words")"
done

# Objects precede the library, whose members of the same name are then left out.
print_bits() {  # PROGRAM OBJECTS
  program=$1; shift
  $compiler "$printer" "$@" "$build/libjudges.a" "$build/libtools.a" "$build/libreprise.a" -o "$program" -lz -lpthread || fail "$program does not link"
  "$program" >"$program.txt" || fail "$program ends with $?"
}
print_bits "$out/one"
print_bits "$out/two" $objects
[ "$(wc -l <"$out/one.txt")" -gt 1000 ] || fail "$(wc -l <"$out/one.txt") cases were run"
cmp -s "$out/one.txt" "$out/two.txt" || {
  diff "$out/one.txt" "$out/two.txt" | sed -n 's/^< \(.*\) .*/\1/p' | head -n 20 >&2
  fail "$compiler and $other write other bits in $(diff "$out/one.txt" "$out/two.txt" | grep -c '^<') cases"
}

# Proves that the comparison detects a compiler that fuses nothing.
if grep -q /avx2 "$out/one.txt"; then
  $compiler -std=c++20 -O1 -I. -fno-math-errno -ffp-contract=off -c lib/cpu/pointwise/elementwise.cpp \
    -o "$out/unfused.o"
  print_bits "$out/three" "$out/unfused.o"
  ! cmp -s "$out/one.txt" "$out/three.txt" || fail "kernels without fused multiply-adds have the same bits: nothing is compared"
fi
echo "$compiler and $other: the same bits in $(wc -l <"$out/one.txt") cases ($kernels)"
