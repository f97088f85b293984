#!/bin/sh
# The README is true: its paths exist, its recipe plans, its program compiles, links and runs, its commands leave nothing that git would
# take for new work, and make help lists every target. Here, too, no document has a line beyond 140 characters.
# Here because it is what people read first and nobody runs twice.
# It must not repeat what the README says: everything is taken from it. BUILD and CXX as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "readme: $1" >&2; exit 1; }

# 1. Every path of the "Where is ..." table.
sed -n '/^## Where is/,/^## /p' README.md | grep '^|' | grep -o '`[^`]*`' | tr -d '`' | sort -u >"$scratch/paths"
[ "$(wc -l <"$scratch/paths")" -ge 10 ] || fail "the table \"Where is ...\" was not found"
while read -r path; do [ -e "$path" ] || fail "\"Where is ...\" names $path, which is not there"; done <"$scratch/paths"

# 2. The recipe plans.
sed -n "/cat > my\/net.json <<'END'/,/^ *END\$/p" README.md | sed '1d;$d' >"$scratch/my.json"
[ -s "$scratch/my.json" ] || fail "the recipe my/net.json was not found"
"$build/reprise" plan "$scratch/my.json" -o "$scratch/plan" 2>"$scratch/words" || fail "my/net.json cannot be planned: $(cat "$scratch/words")"

# 3. The first block of C++ is a whole program, for the library as `make install` leaves it.
env MAKEFLAGS= flock "$build" make -s install BUILD="$build" CXX="$compiler" PREFIX="$scratch/installed" >"$scratch/words" 2>&1 || fail "make install: $(cat "$scratch/words")"
awk '/^```cpp/ && !done { inside = 1; next } /^```/ && inside { inside = 0; done = 1 } inside' README.md >"$scratch/own.cpp"
[ -s "$scratch/own.cpp" ] || fail "the program was not found"
case $($compiler --version) in
  *clang*) proof=-fconstexpr-steps=2000000000 ;;
  *) proof='-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000' ;;
esac
sanitizers=
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then sanitizers='-fsanitize=address,undefined'; fi
$compiler -std=c++20 -O1 -Wall -Wextra $proof $sanitizers -I"$scratch/installed/include/reprise" -I"$scratch/plan" "$scratch/own.cpp" "$scratch/installed/lib/libreprise.a" -o "$scratch/own" -lpthread \
  2>"$scratch/words" || fail "the program does not compile: $(cat "$scratch/words")"
[ ! -s "$scratch/words" ] || fail "the program compiles with warnings: $(cat "$scratch/words")"
"$scratch/own" >"$scratch/out" || fail "the program fails: $(cat "$scratch/out")"
[ "$(grep -c '^step [1-3] loss [0-9.]*$' "$scratch/out")" = 3 ] || fail "the program printed: $(cat "$scratch/out")"

# 4. What the commands write is nothing that git would see: build/ and my/ are left out.
written=$(grep -E '^    |^\$ ' README.md | grep -oE '(cat >|-o|--log|--save|--svg) +[^ "`;)]+' | sed 's/.* //' | sort -u)
[ "$(echo "$written" | wc -l)" -ge 5 ] || fail "the files that its commands write were not found"
if git rev-parse --git-dir >"$scratch/words" 2>&1; then
  for path in $written; do git check-ignore -q "$path" || fail "its commands leave $path, which git would see as new"; done
fi

# 5. make help lists every target that is for people.
make -s help >"$scratch/help"
for target in $(sed -n 's/^\.PHONY://p' Makefile); do
  [ "$target" = force ] || grep -q "^  make $target " "$scratch/help" || fail "make help does not list $target"
done

# 6. No line of a document has more than 140 characters, tables and generated pages included. Bytes that go on with a character do not count.
wide() { LC_ALL=C awk '{ gsub(/[\200-\277]/, "") } length > 140 { print FILENAME ":" FNR " has " length " characters" }' "$@"; }
printf '%0140d\n%0141d\n' 0 0 >"$scratch/wide.md"
[ "$(wide "$scratch/wide.md" | wc -l)" = 1 ] || fail "a line of 141 characters is not told from one of 140"
if git rev-parse --git-dir >"$scratch/words" 2>&1; then
  [ "$(git ls-files '*.md' | wc -l)" -ge 10 ] || fail "the documents were not found"
  git ls-files '*.md' | while read -r page; do wide "$page"; done >"$scratch/words"
  [ ! -s "$scratch/words" ] || fail "lines beyond 140: $(cat "$scratch/words")"
fi
echo "the README is true"
