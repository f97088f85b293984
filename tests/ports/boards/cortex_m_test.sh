#!/bin/sh
# Trains a net on Cortex-M boards under QEMU: in the planned arena and with the bits of the host.
# The guard or the linker reports, in one line, a stack that is too small, an arena that does not
# fit, and a heap. cortex_m/nets.sh has other kinds of nets; cortex_m/flash.sh has snapshots in
# flash and refused inputs; cortex_m/adapt.sh has a net that moves from host to board and learns
# there. No other test runs without an operating system. BUILD names the output folder, CXX the
# host's compiler.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
for tool in arm-none-eabi-g++ qemu-system-arm; do command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool here (packages gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm)"; exit 0; }; done
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo 'skipped: the sanitizers, and a board without an operating system'; exit 0; fi
case $(uname -m)-${CXX:-g++} in x86_64-* | *-*g++*) ;; *) echo "skipped: ${CXX:-g++} fuses multiply-adds here, and the board's compiler does not"; exit 0 ;; esac
scratch=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "cortex-m: $1" >&2; exit 1; }
recipe=tools/recipes/small/resnet8.json
# on BOARD [VARIABLE...]: trains `recipe` there; its output goes to $scratch/words.
on() { board=$1; shift; timeout 900 make -s run-board BUILD="$build" BOARD="$board" RECIPE=$recipe "$@" </dev/null >"$scratch/words" 2>"$scratch/errors"; }

# chip_link_test.sh makes the same library: a lock serialises them.
for each in mps2-an500/m7 mps2-an386/m4 mps3-an547/m55; do
  flock "$build" make -s BUILD="$build" BOARD="${each%/*}" "$build/cortex-m/${each#*/}/libreprise.a" >"$scratch/words" 2>&1 || fail "the library does not compile: $(cat "$scratch/words")"
done

on mps2-an500 || fail "the Cortex-M7 does not train: $(cat "$scratch/words" "$scratch/errors")"
cp "$scratch/words" "$scratch/m7"
# train_on_host NET: trains the same plan on the host.
train_on_host() {
  "${CXX:-g++}" -std=c++20 -O2 -I. -I"$build/cortex-m/mps2-an500/$1" -fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000 \
    ports/cortex_m/train.cpp tests/ports/boards/cortex_m/host_board.cpp "$build/libreprise.a" \
    -o "$scratch/host" -lpthread
  "$scratch/host" >"$scratch/of-host"
}
train_on_host resnet8
losses() { sed -n 's/^\(step .* bits [0-9a-f]*\).*/\1/p' "$1"; }
[ "$(losses "$scratch/m7" | wc -l)" = 3 ] || fail "no three steps: $(cat "$scratch/m7")"
[ "$(losses "$scratch/m7")" = "$(losses "$scratch/of-host")" ] || fail "other bits than the host's: $(cat "$scratch/m7" "$scratch/of-host")"
grep -qE '^arena planned ([0-9]+) measured \1$' "$scratch/m7" || fail "another arena than planned: $(cat "$scratch/m7")"
# The trainer and a kernel together use at most 2 KiB of stack.
takes_little_stack() { awk '/^stack/ { small = $NF <= 2048 } END { exit !small }' "$1" || fail "a stack of more than 2 KiB: $(cat "$1")"; }
takes_little_stack "$scratch/m7"

# The M4 has no floats of 64 bits: library calls replace the M7's instructions.
on mps2-an386 || fail "the Cortex-M4 does not train: $(cat "$scratch/words" "$scratch/errors")"
[ "$(losses "$scratch/words")" = "$(losses "$scratch/m7")" ] || fail "other bits on the M4: $(cat "$scratch/words")"
takes_little_stack "$scratch/words"

# The M55 adds four columns at once.
on mps3-an547 || fail "the Cortex-M55 does not train: $(cat "$scratch/words" "$scratch/errors")"
[ "$(losses "$scratch/words")" = "$(losses "$scratch/m7")" ] || fail "other bits on the M55: $(cat "$scratch/words")"
takes_little_stack "$scratch/words"

! on mps2-an500 STACK=4K || fail "a stack of 4 KiB is enough: $(cat "$scratch/words")"
grep -q "^every worker must have the plan's worker_stack_bytes" "$scratch/words" || fail "a stack of 4 KiB: $(cat "$scratch/words" "$scratch/errors")"
sed 's/"batch": 1/"batch": 28/; s/"resnet8"/"resnet8-large"/' $recipe >"$scratch/large.json"
recipe=$scratch/large.json
! on mps2-an500 || fail "28 images fit 16 MiB: $(cat "$scratch/words")"
grep -q "will not fit in region .arena\|region .arena. overflowed" "$scratch/errors" || fail "28 images: $(cat "$scratch/errors")"
on mps2-an500 BUDGET=15MiB || fail "28 images do not fit 15 MiB either: $(cat "$scratch/words" "$scratch/errors")"
grep -qE '^arena planned ([0-9]+) measured \1$' "$scratch/words" || fail "another arena than planned: $(cat "$scratch/words")"
# link TEXT: links a program for the Cortex-M7 from this source.
link() {
  echo "$1" >"$scratch/own.cpp"
  arm-none-eabi-g++ -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16 -O0 -fno-exceptions -fno-unwind-tables -x c++ "$scratch/own.cpp" -x none "$build/cortex-m/m7/ports/cortex_m/start.o" "$build/cortex-m/m7/ports/cortex_m/semihosting.o" \
    -T ports/cortex_m/mps2-an500.ld -nostartfiles --specs=nosys.specs -o "$scratch/own" 2>"$scratch/errors"
}
link 'int deeper(int n) { volatile int frame[64] = {n}; return deeper(n + 1) + frame[0]; } int main() { return deeper(0); }' || fail "a program does not link: $(cat "$scratch/errors")"
! timeout 60 qemu-system-arm -M mps2-an500 -display none -serial null -monitor none -semihosting-config enable=on,target=native -kernel "$scratch/own" 2>"$scratch/words" || fail 'no end without an end'
[ "$(grep -c . "$scratch/words")" = 1 ] && grep -q '^fault: the stack has overflowed' "$scratch/words" || fail "an overflow: $(cat "$scratch/words")"
! link 'int main() { return *static_cast<int*>(__builtin_malloc(4)); }' || fail 'a program with a heap links'
grep -q 'asks for a heap' "$scratch/errors" || fail "a heap: $(cat "$scratch/errors")"
awk '/^step 2/ { printf "Cortex-M7: %d instructions in a step of ResNet-8\n", $NF * 40 }' "$scratch/m7"
grep '^stack' "$scratch/m7"
. tests/ports/boards/cortex_m/nets.sh
. tests/ports/boards/cortex_m/flash.sh
if [ -e /usr/share/datasets/fashion-mnist ]; then
  . tests/ports/boards/cortex_m/adapt.sh
else
  echo 'skipped: no Fashion-MNIST here to adapt to (package dataset-fashion-mnist)'
fi
BUILD="$build" tests/bench/boards/board_instructions.py --check || fail 'other instructions than on the page'
