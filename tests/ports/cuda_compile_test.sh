#!/bin/sh
# Compiles every kernel in cuda/ for the architectures that Reprise ships, and fails where ptxas spills registers; and the
# kernels of tests/ports/cuda_warp_kernels.cu, which use every function of cuda/warp.h.
# Here because a spill costs more than any test shows, and ptxas reads the PTX that fibres cannot run.
# Without nvcc it says so and passes. NVCC names the compiler, BUILD the output folder, ARCHITECTURES what is compiled for: the suite takes
# Orin's alone, because one takes minutes; `make cuda` takes all that Reprise ships.
set -eu
cd "$(dirname "$0")/../.."
out=${BUILD:-build}/cuda
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if ! command -v "$nvcc" >/dev/null 2>&1; then
  echo "skipped: no nvcc here; cuda/ is compiled and run by the fibres alone (cuda_kernels_test)"
  exit 0
fi
architectures=${ARCHITECTURES:-87}
targets=
for each in $architectures; do targets="$targets -gencode arch=compute_$each,code=sm_$each"; done
mkdir -p "$out"
for source in cuda/*.cu tests/ports/cuda_warp_kernels.cu; do
  name=$(basename "$source" .cu)
  log=$out/$name.ptxas
  "$nvcc" -std=c++20 -O3 -fmad=false -I. --Werror all-warnings --expt-relaxed-constexpr -Xptxas -v -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti \
    $targets -c "$source" -o "$out/$name.o" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  kernels=$(grep -c 'ptxas info *: Used' "$log") || { echo "$source: ptxas told nothing of its kernels" >&2; exit 1; }
  if grep 'bytes spill' "$log" | grep -v ', 0 bytes spill stores, 0 bytes spill loads' >&2; then
    echo "$source: ptxas spilled registers; $log names the kernels" >&2
    exit 1
  fi
  most=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$log" | sort -n | tail -1)
  echo "$source: $kernels kernels over sm $architectures, at most $most registers, no spills"
done
