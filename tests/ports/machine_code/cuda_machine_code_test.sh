#!/bin/sh
# Checks NVIDIA's machine code of the kernels in cuda/: it spills no register. Registers, shared
# memory, occupancy and the counts of each kernel's main loop (sass_counts.py) equal those of
# tests/golden/cuda. A spill, a division or a lost vector load costs more time than a test of
# results shows, and a card may not be available. The Makefile has compiled into BUILD/cuda for
# ARCHITECTURES: the suite uses only Orin's, `make cuda` all that Reprise ships for. BLESS=1 writes
# the goldens instead of comparing. Code of another nvcc than the goldens' is not compared.
set -eu
cd "$(dirname "$0")/../../.."
built=${BUILD:-build}/cuda
fail() { echo "$1" >&2; exit 1; }

if ! command -v python3 >/dev/null 2>&1; then echo "skipped: no python3 here; the counts of machine code are not compared"; exit 0; fi
mkdir -p "$built"
if [ ! -e "$built/compiler" ]; then
  echo "skipped: nvcc has compiled nothing into $built; cuda/ is compiled and run by the fibres alone (cuda_kernels_test)"
  exit 0
fi

# A card keeps denormals (lib/SPEED.md, section 8.7): no instruction may flush them.
if grep -n -m 3 '\.ftz' "$built"/*.ptx >&2; then fail "these instructions take denormals for zero"; fi

for architecture in ${ARCHITECTURES:-87}; do
  code=sm_$architecture golden=tests/golden/cuda/sm_$architecture.txt
  for source in cuda/*.cu cuda/*/*.cu tests/ports/cards/cuda_*_kernels.cu; do
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
    for name in $(basename -s .cu cuda/*.cu cuda/*/*.cu | LC_ALL=C sort); do cat "$built/$name.$code.counts"; done
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
