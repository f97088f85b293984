#!/bin/sh
# Links nets for chips that need not be present, and compares with `reprise fit --board`. A net that
# fits links, with code and data within the figures of the board's file. For a net that does not
# fit, a line of the linker script names the memory: a linker script is only right if it refuses
# such a net. BUILD names the output folder.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
command -v arm-none-eabi-g++ >/dev/null 2>&1 || { echo "skipped: no arm-none-eabi-g++ here (packages gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib)"; exit 0; }
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo 'skipped: the sanitizers, and a board without an operating system'; exit 0; fi
scratch=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "chip-link: $1" >&2; exit 1; }
# Code without 64-bit floats runs on both chips.
library=$build/cortex-m/m4
flock "$build" make -s BUILD="$build" BOARD=stm32f746 "$library/libreprise.a" >"$scratch/words" 2>&1 || fail "the library does not compile: $(cat "$scratch/words")"

cat >"$scratch/tiny.json" <<'JSON'
{"name": "tiny", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 4, "stem": "cifar", "classes": 4, "image": [16, 16, 1]},
 "data": {"kind": "synthetic"}, "core": "small", "batch": 1, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}, "steps": 1}
JSON
cp tools/recipes/small/resnet8.json tools/recipes/small/mobilenet-v2-0.35.json "$scratch"
# link CHIP NET: plans the net and links its program for the chip.
link() {
  "$build/reprise" plan "$scratch/$2.json" -o "$scratch/$2" 2>"$scratch/words" || fail "$2 cannot be planned: $(cat "$scratch/words")"
  arm-none-eabi-g++ -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -std=c++20 -Os -fno-exceptions -fno-rtti -ffunction-sections -fdata-sections -fno-threadsafe-statics \
    -fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000 -I. -I"$scratch/$2" ports/cortex_m/train.cpp "$library"/ports/cortex_m/*.o "$library/libreprise.a" \
    -T "ports/cortex_m/$1.ld" -nostartfiles -Wl,--gc-sections -o "$scratch/$1-$2" 2>"$scratch/errors"
}
# section NAME FILE: prints the bytes of a section.
section() { arm-none-eabi-size -A "$2" | awk -v name="$1" '$1 == name { print $2 }'; }
# figure KEY: prints a figure of the board from the last answer.
figure() { sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$scratch/answer"; }

for chip in stm32f746 stm32h743; do
  "$build/reprise" fit "$scratch/tiny.json" --board $chip --json >"$scratch/answer" 2>"$scratch/words" || fail "a tiny net does not fit: $(cat "$scratch/words")"
  link $chip tiny || fail "a tiny net does not link for $chip: $(cat "$scratch/errors")"
  program=$scratch/$chip-tiny
  [ "$(section .arena "$program")" = "$(figure planned_bytes)" ] || fail "another arena than planned: $(section .arena "$program")"
  [ "$(section .text "$program")" -le $(($(figure code_bytes) + $(figure plan_bytes))) ] || fail "more code than the file says: $(section .text "$program")"
  [ $(($(section .data "$program") + $(section .bss "$program"))) -le "$(figure data_bytes)" ] || fail "more data than the file says"
done
refused() {
  status=0; "$build/reprise" fit "$scratch/$2.json" --board "$1" >/dev/null 2>"$scratch/words" || status=$?
  [ $status = 3 ] || fail "$2 fits $1 by \`reprise fit\`: $status $(cat "$scratch/words")"
  ! link "$1" "$2" || fail "$2 links for $1"
  grep -qF "$3" "$scratch/errors" || fail "$2 for $1: $(cat "$scratch/errors")"
}
refused stm32f746 resnet8 'arena + stack + data are more than the 320 KiB of RAM'
refused stm32h743 mobilenet-v2-0.35 'the arena is more than the 512 KiB of AXI SRAM'
sed 's/20K/200K/' ports/cortex_m/stm32h743.ld >"$scratch/deep.ld"
! arm-none-eabi-g++ -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -x c++ /dev/null -nostdlib -T "$scratch/deep.ld" -o "$scratch/deep" 2>"$scratch/errors" || fail 'a stack of 200 KiB links'
grep -qF 'stack + data are more than the 128 KiB of DTCM' "$scratch/errors" || fail "a stack of 200 KiB: $(cat "$scratch/errors")"
! make -s run-board BUILD="$build" BOARD=stm32f746 RECIPE=tools/recipes/small/ds-cnn.json >"$scratch/words" 2>&1 || fail 'QEMU has an STM32F746'
grep -q 'BOARD=stm32f746: must be one of mps2-an386 mps2-an500 mps3-an547' "$scratch/words" || fail "another board than QEMU's: $(cat "$scratch/words")"
