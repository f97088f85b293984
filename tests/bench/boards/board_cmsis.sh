#!/bin/sh
# board_cmsis.sh FOLDER: prints instructions per multiply-add of CMSIS-DSP's f32 products on a
# Cortex-M7, M4 and M55 under QEMU, compiled with the flags of Reprise's kernels. FOLDER is a
# checkout of https://github.com/ARM-software/CMSIS-DSP (Apache-2.0). BUILD names the output folder;
# `make run-board` must have run there for each board. BOARD_PEERS.md quotes the output.
set -eu
source=$(realpath "$1")
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Replaces the CMSIS-Core header of which CMSIS-DSP's headers use these macros; the two functions
# need no more.
cat >"$scratch/cmsis_compiler.h" <<'HEADER'
#include <arm_acle.h>
#include <stdint.h>
#define __STATIC_INLINE static inline
#define __STATIC_FORCEINLINE __attribute__((always_inline)) static inline
#define __ALIGNED(bytes) __attribute__((aligned(bytes)))
#define __CLZ(word) ((uint8_t)__builtin_clz(word))
#define __ASM __asm
#define __SSAT __ssat
#define __USAT __usat
HEADER
# measure BOARD INSTRUCTIONS_PER_TICK COMPILER_OPTION...
measure() {
  board=$1 of_a_tick=$2; shift 2
  for contract in off fast; do
    for each in arm_mat_mult_f32 arm_mat_vec_mult_f32; do
      arm-none-eabi-gcc "$@" -mthumb -mfloat-abi=hard -O2 -fno-schedule-insns -ffp-contract=$contract -fno-math-errno -fno-trapping-math -DARM_MATH_LOOPUNROLL \
        -I"$scratch" -I"$source/Include" -I"$source/PrivateInclude" -c "$source/Source/MatrixFunctions/$each.c" -o "$scratch/$each.o"
    done
    arm-none-eabi-g++ "$@" -mthumb -mfloat-abi=hard -std=c++20 -O2 -fno-exceptions -fno-rtti -I. tests/bench/boards/board_cmsis.cpp "$scratch"/arm_*.o \
      "$build/cortex-m/$board/ports/cortex_m/start.o" "$build/cortex-m/$board/ports/cortex_m/semihosting.o" -T "ports/cortex_m/$board.ld" -nostartfiles -Wl,--gc-sections -o "$scratch/program"
    qemu-system-arm -M "$board" -display none -serial null -monitor none -chardev stdio,id=words -semihosting-config enable=on,target=native,chardev=words -icount shift=0 \
      -kernel "$scratch/program" </dev/null | awk -v board="$board, -ffp-contract=$contract:" -v tick="$of_a_tick" '{ printf "%s %s %s %.2f\n", board, $1, $2, $3 * tick / $4 }'
  done
}
measure mps2-an500 40 -mcpu=cortex-m7 -mfpu=fpv5-d16
measure mps2-an386 40 -mcpu=cortex-m4 -mfpu=fpv4-sp-d16
measure mps3-an547 31.25 -mcpu=cortex-m55
