#!/bin/sh
# Tests `make board` and `make dist`: a training program for an AArch64 board that needs nothing but
# its C library, and `reprise` for the same board. Both run here under qemu. They make the plan of
# this machine, byte for byte. They train with equal bits under every plan, compiled in or from a
# file, and measure the planned bytes. A card's program runs with fibres as its card and with a
# driver of the tests. Reason: a board has neither a compiler nor the packages of a development
# machine, and no test runs on a real one. BUILD names the output folder. The test is skipped if the
# cross compiler, the emulator, or Debian's packages for arm64 are missing.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
fail() { echo "board: $1" >&2; exit 1; }
for tool in aarch64-linux-gnu-g++ aarch64-linux-gnu-readelf qemu-aarch64 apt-get; do
  command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool here (packages g++-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user)"; exit 0; }
done
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the sanitizers do not reach the emulator"; exit 0; fi
scratch=$(mktemp -d)
# Tools are compiled without optimisation here: remove them so that nobody uses them on a board.
clean() {
  flock "$build/arm64.lock" rm -rf "$scratch" "$build/arm64/modules" "$build/arm64/tools" "$build/arm64/libtools.a" "$build/arm64/reprise" "$build/arm64/board-net" "$build/board/aarch64"
  rm -rf "$build"/dist/reprise-*-aarch64* "$build"/dist/reprise_*_arm64.deb
}
trap clean EXIT
clean
mkdir "$scratch"

mkdir -p "$build/board"
tools/board_root.sh "$build/board/root" >"$scratch/words" 2>&1 || { echo "skipped: $(tail -n 1 "$scratch/words")"; exit 0; }

cat >"$scratch/net.json" <<'TEXT'
{"name": "board-net", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 10, "image": [16, 16, 3]},
 "data": {"kind": "synthetic"}, "batch": 4, "steps": 3, "seed": 1, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
TEXT
env MAKEFLAGS= MAKELEVEL=0 make BUILD="$build" CXX="${CXX:-g++}" dist RECIPE="$scratch/net.json" TARGET=aarch64 TOOL_LEVEL=-O0 >"$scratch/words" 2>&1 \
  || { cat "$scratch/words" >&2; fail "make dist fails"; }
board=$build/board/aarch64
program=$board/board-net/train

# 1. They need only the board's C library, in a version that JetPack 6 (Ubuntu 22.04, glibc 2.35)
# has.
for each in "$board/reprise" "$program"; do
  needed=$(aarch64-linux-gnu-readelf -d "$each" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE 'libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux-aarch64\.so\.1' || true)
  [ -z "$needed" ] || fail "$each needs" $needed
  newest=$(aarch64-linux-gnu-readelf -V "$each" | grep -o 'GLIBC_2\.[0-9]*' | sort -t. -k2 -n -u | tail -n 1)
  [ "${newest#GLIBC_2.}" -le 35 ] || fail "$each needs $newest, and JetPack 6 has GLIBC_2.35"
done

# 2. They run without any other file.
emulate() { qemu-aarch64 -cpu cortex-a76 -L /usr/aarch64-linux-gnu "$@"; }
run() { emulate "$@" >"$scratch/out" 2>&1 || { cat "$scratch/out" >&2; fail "$* fails"; }; }
losses() { sed -E 's/, "(seconds|planned_bytes|measured_bytes)": [0-9.]*//g' "$1"; }
cp "$board/reprise" "$program" "$scratch"
run "$scratch/train" --quiet --log "$scratch/compiled.jsonl" --save "$scratch/compiled"
"$build/reprise" plan "$scratch/net.json" --schedule none --binary -o "$scratch/here" 2>/dev/null
run "$scratch/reprise" plan "$scratch/net.json" --schedule none --binary -o "$scratch/there"
cmp "$scratch/here/plan.bin" "$scratch/there/plan.bin" || fail "a board plans otherwise than this machine"
run "$scratch/train" --quiet --plan "$scratch/here/plan.bin" --log "$scratch/filed.jsonl" --save "$scratch/filed"
run "$scratch/reprise" train "$scratch/there/plan.bin" --quiet --log "$scratch/alone.jsonl" --save "$scratch/alone"
for how in filed alone; do
  [ "$(losses "$scratch/$how.jsonl")" = "$(losses "$scratch/compiled.jsonl")" ] || fail "$how: other losses than the plan that is compiled in"
  cmp "$scratch/$how/model.safetensors" "$scratch/compiled/model.safetensors" || fail "$how: other weights than the plan that is compiled in"
done
for log in compiled filed alone; do
  grep -q '"planned_bytes": \([0-9]*\), "measured_bytes": \1}' "$scratch/$log.jsonl" || fail "$log: planned bytes are not the measured ones"
done
# 3. The package and the tar, each in a root of its own: their programs run there and find their
# boards.
mkdir -p "$scratch/tar" "$scratch/root/var/lib/dpkg/info" "$scratch/root/var/lib/dpkg/updates" && : >"$scratch/root/var/lib/dpkg/status"
tar -xzf "$build"/dist/reprise-*-aarch64-arm64.tar.gz -C "$scratch/tar" --strip-components=1
package=$(ls "$build"/dist/reprise_*_arm64.deb)
if [ "$(id -u)" = 0 ]; then
  dpkg --root="$scratch/root" --force-architecture,depends --install "$package" >"$scratch/words" 2>&1 || { cat "$scratch/words" >&2; fail "the package cannot be installed"; }
else
  dpkg-deb -x "$package" "$scratch/root"
fi
for where in "$scratch/tar" "$scratch/root/usr"; do
  run "$where/bin/board-net" --quiet --steps 1
  run "$where/bin/reprise" fit "$scratch/net.json" --board orin-nano-8gb
done
dpkg-deb -f "$package" Depends | grep -q '^libc6 (>= 2\.' || fail "the package does not say what it needs"

# 4. The program for a card, without nvcc's code and the real driver: its kernels are fibres
# (tests/ports/fibres/cuda_fibre.h), and fake_cuda_driver.h is the driver. It proves its plan,
# allocates and measures its memory, records its steps and trains with the bits of the same program
# on this machine.
card=$scratch/card
mkdir "$card"
sed 's/"board-net"/"board-card", "backend": "cuda"/' "$scratch/net.json" >"$scratch/card.json"
"$build/reprise" plan "$scratch/card.json" -o "$card" 2>/dev/null
cat >"$card/card.cpp" <<'TEXT'
#include "tests/ports/fibres/cuda_fibre.h"
#include <cstdio>
#include <unistd.h>
#include "tests/ports/cards/fake_cuda_driver.h"
struct Card {
  Card() {
    reprise::test::fake_cuda_card() = {};  // which brings the driver with it
    reprise::fibre::architecture = 87;
    reprise::fibre::set_order(7);
  }
  ~Card() {
    const std::string fault = reprise::fibre::take_report().text;
    if (!fault.empty()) std::fprintf(stderr, "%s\n", fault.c_str()), _exit(1);
  }
} card;
TEXT
proof="-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000"
# shellcheck disable=SC2086
${CXX:-g++} -std=c++20 -O1 $proof -I. -I"$card" "$card/card.cpp" tools/train_cuda.cpp -Wl,--start-group "$build/libjudges.a" "$build/libtools.a" "$build/libreprise.a" -Wl,--end-group \
  -o "$card/here" -lblis -lz -ljpeg -licuuc -Wl,-lc -lonig -lpthread -ldl || fail "the card's program cannot be compiled here"
for source in cuda/norm/batch_norm cuda/conv/conv cuda/cuda_backend cuda/cuda_host_access cuda/cuda_recorder \
  cuda/pointwise/elementwise cuda/norm/grad_norm cuda/gemm/linear cuda/loss/loss_head \
  cuda/update/optimizer cuda/conv/pool $(ls tests/ports/fibres/cuda_fibre_*.cpp | grep -v _test | sed 's/\.cpp$//') \
  tests/ports/fibres/code_places tests/ports/cards/fake_cuda_driver \
  tests/ports/ptx/tensor_core tests/ops/memory_ranges "$card/card" tools/train_cuda; do
  set -- "$source.cpp"
  if [ -e "$source.cu" ]; then set -- -x c++ -include tests/ports/fibres/cuda_fibre.h "$source.cu"; fi
  # shellcheck disable=SC2086
  aarch64-linux-gnu-g++ -std=c++20 -O1 -Wno-psabi -ffp-contract=off $proof -I. -I"$card" -isystem "$build/board/root/usr/include" -c "$@" \
    -o "$card/$(basename "$source").o" || fail "$source cannot be compiled for the board"
done
# Kernels that the plan does not call are not compiled: their entries in the table are null. The
# program counts calls of malloc with its own functions.
aarch64-linux-gnu-g++ -static -Wl,--unresolved-symbols=ignore-all -Wl,--allow-multiple-definition "$card"/*.o -Wl,--start-group "$build/arm64/libtools.a" "$build/arm64/libreprise.a" -Wl,--end-group \
  -o "$card/there" -L"$build/board/root/usr/lib/aarch64-linux-gnu" -lz -ljpeg -licuuc -licudata -Wl,-lc -lonig -lpthread -ldl 2>"$scratch/words" \
  || { cat "$scratch/words" >&2; fail "the card's program cannot be linked for the board"; }
"$card/here" --quiet --log "$card/here.jsonl" --save "$card/saved-here" || fail "the card's program fails here"
run "$card/there" --quiet --log "$card/there.jsonl" --save "$card/saved-there"
[ "$(losses "$card/here.jsonl")" = "$(losses "$card/there.jsonl")" ] || fail "the card's program has other losses on the board"
cmp "$card/saved-here/model.safetensors" "$card/saved-there/model.safetensors" || fail "the card's program has other weights on the board"
grep -q '"planned_bytes": \([0-9]*\), "measured_bytes": \1}' "$card/there.jsonl" || fail "the card's plan: planned bytes are not the measured ones"
run "$scratch/reprise" plan "$scratch/card.json" --binary -o "$card/filed"
run "$card/there" --quiet --plan "$card/filed/plan.bin" --log "$card/filed.jsonl" --steps 1
[ "$(losses "$card/filed.jsonl")" = "$(losses "$card/there.jsonl" | head -n 1)" ] || fail "a card's plan from a file trains otherwise than the one that is compiled in"

printf '%s\n' "$(du -h "$scratch/reprise" | cut -f1) reprise, $(du -h "$scratch/train" | cut -f1) train: on a board as here"
