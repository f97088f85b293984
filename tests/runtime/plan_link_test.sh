#!/bin/sh
# Tests that a program with one plan links only the kernels that the plan calls. For example, the
# program of ResNet-8's plan must have no attention, no kernels in bf16 and no second proof. Prints
# its size, and that of the same program with the complete table of kernels. Reason: a board's flash
# has space for a plan's dozen kernels, and one line that references the table links all kernels.
# BUILD names the output folder, CXX the compiler.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the sanitizers' build has symbols of its own"; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "plan_link: $1" >&2; exit 1; }

"$build/reprise" plan tests/runtime/board/resnet8.json -o "$scratch" >/dev/null 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
case $compiler in *clang*) proof=-fconstexpr-steps=2000000000 ;; *) proof="-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000" ;; esac
link() {  # SOURCE PROGRAM
  $compiler -std=c++20 -Os -fno-exceptions -fno-rtti $proof -ffunction-sections -Wl,--gc-sections -I. -I"$scratch" "$1" "$build/libreprise.a" -o "$2" -lpthread
}
link tests/runtime/board/train_one_plan.cpp "$scratch/own"
sed -e 's/cpu_backend_of<kCalls>(machine)/cpu_backend(machine)/' -e 's/#include "lib\/trainer.h"/&\n#include "lib\/cpu\/cpu_backend.h"/' \
  tests/runtime/board/train_one_plan.cpp >"$scratch/whole.cpp"
link "$scratch/whole.cpp" "$scratch/whole"

# kernels PROGRAM: prints the CPU kernels that it contains as functions.
kernels() { nm -C --defined-only "$1" | sed -n 's/^[0-9a-f]* [tTW] .*reprise::\(cpu_[a-z_]*\(<[^>]*>\)\{0,1\}\)(reprise::KernelContext const&, .*Args.*/\1/p' | sort -u; }
"$scratch/own" >"$scratch/own.txt" && "$scratch/whole" >"$scratch/whole.txt" || fail "the program does not train"
cmp -s "$scratch/own.txt" "$scratch/whole.txt" || fail "the losses are not those of the whole table"
kernels "$scratch/own" >"$scratch/own.kernels"
kernels "$scratch/whole" >"$scratch/whole.kernels"
for each in 'cpu_conv_forward<float>' 'cpu_conv_backward_weight<float>' 'cpu_loss_head_backward<float>' 'cpu_sgd_update<false>'; do
  grep -qxF "$each" "$scratch/own.kernels" || fail "it calls $each and does not have it"
done
absent='Bf16>|<true>|attention|embedding|layer_norm|rms_norm|gelu|swiglu|dropout|rope|max_pool|adamw|lion'
if grep -E "$absent" "$scratch/own.kernels" >&2; then fail "it has these kernels and calls none of them"; fi
# Proves that the test would detect such kernels: the program with the complete table has them.
[ "$(grep -cE "$absent" "$scratch/whole.kernels")" -gt 20 ] || fail "the whole table's kernels are not seen"
proofs() { nm -C --defined-only "$1" | grep -c 'reprise::proof::' || true; }
[ "$(proofs "$scratch/own")" = 0 ] || fail "bind_proved links the proof"
bytes() { size "$1" | awk 'NR == 2 { print $1 " bytes of code and constants, " $2 " of data" }'; }
echo "ResNet-8's plan: $(wc -l <"$scratch/own.kernels") kernels, $(bytes "$scratch/own"); absent: $(comm -13 "$scratch/own.kernels" "$scratch/whole.kernels" | wc -l) kernels"
echo "the whole table: $(wc -l <"$scratch/whole.kernels") kernels, $(bytes "$scratch/whole")"
comm -13 "$scratch/own.kernels" "$scratch/whole.kernels" | paste -sd' ' | sed 's/^/absent: /'
