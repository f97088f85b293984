#!/bin/sh
# What NVIDIA's compiler makes of the kernels in cuda/: it spills no register, and registers, shared memory, occupancy and the counts of
# each kernel's main loop (sass_counts.py) are those of tests/golden/cuda; the model on paper (cuda/PAPER_MODEL.md) follows from these.
# Here because a spill, a division or a lost vector load costs more than any test of results shows, and because no card can be counted on.
# The Makefile has compiled into BUILD/cuda. ARCHITECTURES says for what: the suite takes Orin's alone, `make cuda` all that Reprise ships
# for. BLESS=1 writes the goldens and the model instead of comparing. Another nvcc than the goldens' makes other code: it is not compared.
set -eu
cd "$(dirname "$0")/../.."
built=${BUILD:-build}/cuda
fail() { echo "$1" >&2; exit 1; }

if ! command -v python3 >/dev/null 2>&1; then echo "skipped: no python3 here; the counts of machine code are not compared"; exit 0; fi
mkdir -p "$built"
check_model() {
  [ -x "${BUILD:-build}/reprise" ] || fail "no ${BUILD:-build}/reprise, which plans the steps of cuda/PAPER_MODEL.md: make it first"
  tests/ports/paper_model.py "${BUILD:-build}/reprise" >"$built/PAPER_MODEL.md"
  if [ -n "${BLESS:-}" ]; then cp "$built/PAPER_MODEL.md" cuda/PAPER_MODEL.md; fi
  diff -u cuda/PAPER_MODEL.md "$built/PAPER_MODEL.md" >&2 || fail "cuda/PAPER_MODEL.md is not what tests/golden/cuda and the plans give: make cuda BLESS=1"
}
if [ ! -e "$built/compiler" ]; then
  check_model
  echo "skipped: nvcc has compiled nothing into $built; cuda/ is compiled and run by the fibres alone (cuda_kernels_test)"
  exit 0
fi

# A card keeps denormals (SPEED 8.7): no instruction flushes them.
if grep -n -m 3 '\.ftz' "$built"/*.ptx >&2; then fail "these instructions take denormals for zero"; fi

for architecture in ${ARCHITECTURES:-87}; do
  code=sm_$architecture golden=tests/golden/cuda/sm_$architecture.txt
  for source in cuda/*.cu tests/ports/cuda_*_kernels.cu; do
    log=$built/$(basename "$source" .cu).$code.ptxas
    [ -e "$log" ] || fail "no $log: make it first (make cuda)"
    grep -q 'bytes gmem\|Compiling entry' "$log" || fail "$source: ptxas told nothing of its kernels; see $log"
    if grep 'bytes spill' "$log" | grep -v ', 0 bytes spill stores, 0 bytes spill loads' >&2; then
      fail "$source: ptxas spilled registers for $code; $log names the kernels"
    fi
  done
  if [ ! -s "$built/disassembler" ]; then
    echo "skipped: no nvdisasm here (PyPI: nvidia-cuda-nvdisasm); no spills for $code, and its main loops are not counted"
    continue
  fi
  counted=$built/$code.txt
  {
    echo "$(head -n 1 "$built/compiler") for $code: what it makes of each kernel, as sass_counts.py says; written by make cuda BLESS=1"
    for source in cuda/*.cu; do cat "$built/$(basename "$source" .cu).$code.counts"; done
  } >"$counted"
  if grep '^fault: ' "$counted" >&2; then fail "these kernels may not be like that"; fi
  if [ -n "${BLESS:-}" ]; then
    mkdir -p "$(dirname "$golden")"
    cp "$counted" "$golden"
    echo "$golden: $(($(wc -l <"$golden") - 1)) kernels"
  elif [ "$(head -n 1 "$counted")" != "$(head -n 1 "$golden")" ]; then
    blessed=$(sed -n '1s/ for .*//p' "$golden")
    echo "skipped: $(head -n 1 "$built/compiler") here, $blessed in $golden; no spills, and the counts are not compared"
  else
    diff -u "$golden" "$counted" >&2 || fail "$golden has changed: if that is meant, make cuda BLESS=1 and say why"
    echo "$golden: $(($(wc -l <"$golden") - 1)) kernels as blessed, no spills"
  fi
done
check_model
