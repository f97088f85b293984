#!/bin/sh
# Compares the register tiles' main loops in llvm-mca's models of several cores with the rows of
# tests/bench/pages/TILES.md, if this is the compiler that the page names: a change of a tile then
# shows its cost on processors that are not available. BUILD names the output folder; the test is
# skipped without llvm-mca 19, or with the sanitizers.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
fail() { echo "tile_model: $1" >&2; exit 1; }
for tool in llvm-mca-19 python3 objdump; do command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool here (package llvm-19)"; exit 0; }; done
[ "$(uname -m)" = x86_64 ] || { echo "skipped: these tiles are not those of x86-64"; exit 0; }
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo "skipped: the sanitizers change the loops"; exit 0; fi
page=tests/bench/pages/TILES.md
grep -qF "g++ $(${CXX:-g++} -dumpfullversion)" $page || { echo "skipped: the page is of another compiler"; exit 0; }
tests/ports/boards/tile_model.py "$build" >"$rows" \
  || fail "a tile has no loop that multiplies, or llvm-mca does not read it"
test "$(wc -l <"$rows")" -gt 20 || fail "rows are missing: $(cat "$rows")"
while read -r row; do grep -qxF "$row" $page || fail "$page does not have: $row"; done <"$rows"
echo "$(wc -l <"$rows") loops as the page has them"
