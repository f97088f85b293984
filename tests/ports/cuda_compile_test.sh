#!/bin/sh
# Compiles every kernel in cuda/ for the architectures that Reprise ships, and fails where ptxas spills registers; and the
# kernels of tests/ports/cuda_warp_kernels.cu, which use every function of cuda/warp.h.
# Here because a spill costs more than any test shows, and ptxas reads the PTX that fibres cannot run.
# Without nvcc it says so and passes. NVCC names the compiler, BUILD the output folder.
set -eu
cd "$(dirname "$0")/../.."
out=${BUILD:-build}/cuda
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if ! command -v "$nvcc" >/dev/null 2>&1; then
  echo "skipped: no nvcc here; cuda/ is compiled and run by the fibres alone (cuda_layer_norm_test)"
  exit 0
fi
mkdir -p "$out"
for source in cuda/*.cu tests/ports/cuda_warp_kernels.cu; do
  name=$(basename "$source" .cu)
  log=$out/$name.ptxas
  "$nvcc" -std=c++20 -O3 -fmad=false -I. --Werror all-warnings -Xptxas -v -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti \
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_87,code=sm_87 -gencode arch=compute_90,code=sm_90 \
    -c "$source" -o "$out/$name.o" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  kernels=$(grep -c 'ptxas info *: Used' "$log") || { echo "$source: ptxas told nothing of its kernels" >&2; exit 1; }
  if grep 'bytes spill' "$log" | grep -v ', 0 bytes spill stores, 0 bytes spill loads' >&2; then
    echo "$source: ptxas spilled registers; $log names the kernels" >&2
    exit 1
  fi
  most=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$log" | sort -n | tail -1)
  echo "$source: $kernels kernels over sm_80, sm_87, sm_90, at most $most registers, no spills"
done
