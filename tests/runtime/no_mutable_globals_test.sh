#!/bin/sh
# Tests by their sections that the objects of lib and cuda contain no object of static storage
# duration except constants. Reason: the machine's properties that kernels need belong to the
# trainer (lib/cpu/cpu_machine.h); a global would be shared by all trainers. BUILD names the output
# folder.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
objects=$(find "$build/lib" "$build/fibre/cuda" -name '*.o' 2>/dev/null || true)
if [ -z "$objects" ]; then echo "no objects in $build/lib: make it first" >&2; exit 1; fi
if nm $objects | grep -q '__asan_'; then echo "skipped: the sanitizers' build has symbols of its own"; exit 0; fi

# When the kernels of cuda are compiled for the fibres (tests/ports/fibres/cuda_fibre.h), CUDA's
# indices and REPRISE_SHARED arrays are globals of the host, which the test accepts. Each array has
# its name in the sources, and its own guard.
arrays=$(find cuda -type f -exec sed -n 's/^ *REPRISE_SHARED([^,]*, \([a-z_]*\), .*/\1/p' {} + | sort -u | paste -sd'|')
fibres="(DW\\.ref.*|(block|grid|thread)(Idx|Dim)|.*reprise5fibre.*|_Z.*E[0-9]+($arrays)(_[0-9]+)?)"

# writable FILES: prints "section object" of every object in a section that is not read-only once
# the program is loaded.
writable() {
  nm -f sysv "$@" | awk -F'|' 'NF == 7 {
    gsub(/ /, "", $1); gsub(/ /, "", $7)
    if ($7 ~ /^(\.t?data|\.t?bss|\*COM\*)/ && $7 !~ /^\.data\.rel\.ro/) print $7, $1
  }'
}
found=$(writable $objects | grep -vE " $fibres\$" || true)
if [ -n "$found" ]; then
  printf '%s\n' "$found" | c++filt >&2
  echo "lib and cuda must do without these" >&2
  exit 1
fi

# Proves that the test detects each kind of mutable object, and that it accepts constants.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
seen() {
  printf '%s\n' "$1" >"$scratch/a.cpp"
  ${CXX:-g++} -std=c++20 -O1 -fPIE -c "$scratch/a.cpp" -o "$scratch/a.o"
  [ -n "$(writable "$scratch/a.o")" ]
}
for fault in 'int a;' 'int a = 1;' 'inline int a = 1; int f() { return ++a; }' 'thread_local int a;' 'thread_local int a = 1;' \
  'const char* f(char c) { static char name[2]; name[0] = c; return name; }' 'namespace { int a; } int f() { return ++a; }'; do
  seen "$fault" || { echo "no_mutable_globals: does not see: $fault" >&2; exit 1; }
done
for constant in 'extern const int a[2] = {1, 2};' 'int f(); extern int (*const a)() = f;' 'int f(); inline constexpr int (*a[])() = {f}; int g(int i) { return a[i](); }'; do
  ! seen "$constant" || { echo "no_mutable_globals: takes for mutable: $constant" >&2; exit 1; }
done
echo "$(printf '%s\n' $objects | wc -l) objects of lib and cuda hold constants alone"
