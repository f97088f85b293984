#!/bin/sh
# Tests the documents: the paths of CONTRIBUTING.md exist, the guides' recipe plans, the program of
# lib/EMBEDDING.md compiles, links and runs. The documents' commands leave nothing that git would
# show as new, and make help lists every target. No document has a line of more than 140 characters,
# and CITATION.cff is complete. The test repeats nothing from the documents: it reads everything
# from them. BUILD and CXX as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "readme: $1" >&2; exit 1; }

# 1. Every path of the "Where is ..." table.
sed -n '/^## Where is/,/^## /p' CONTRIBUTING.md | grep '^|' | grep -o '`[^`]*`' | tr -d '`' | sort -u >"$scratch/paths"
[ "$(wc -l <"$scratch/paths")" -ge 10 ] || fail "the table \"Where is ...\" was not found"
while read -r path; do [ -e "$path" ] || fail "\"Where is ...\" names $path, which is not there"; done <"$scratch/paths"

# 2. The recipe plans.
sed -n "/cat > my\/net.json <<'END'/,/^ *END\$/p" tools/guides/recipes.md | sed '1d;$d' >"$scratch/my.json"
[ -s "$scratch/my.json" ] || fail "the recipe my/net.json was not found"
"$build/reprise" plan "$scratch/my.json" -o "$scratch/plan" 2>"$scratch/words" || fail "my/net.json cannot be planned: $(cat "$scratch/words")"

# One command makes a manifest, and CI's command accepts its plan.
renew=$(sed -n 's/^    build\/reprise \(audit net.json --gate .*--renew\)$/\1/p' tools/guides/audit.md)
compare=$(sed -n '/^          reprise\/build\/reprise audit/,/>>/p' tools/guides/audit.md | tr '\n' ' ' | sed 's/^ *reprise\/build\/reprise \(.*\) >> .*/\1/')
[ -n "$renew" ] && [ -n "$compare" ] || fail "the commands of the gate were not found"
mkdir "$scratch/gate"
cp "$scratch/my.json" "$scratch/gate/net.json"
reprise=$(cd "$build" && pwd)/reprise
(cd "$scratch/gate" && "$reprise" $renew && "$reprise" $compare) >"$scratch/words" 2>&1 || fail "the gate: $(cat "$scratch/words")"
grep -q '| \*\*total\*\* |' "$scratch/words" || fail "the gate printed no table: $(cat "$scratch/words")"

# 3. The first block of C++ is a whole program for the library as `make install` installs it.
env MAKEFLAGS= flock "$build" make -s install BUILD="$build" CXX="$compiler" PREFIX="$scratch/installed" >"$scratch/words" 2>&1 || fail "make install: $(cat "$scratch/words")"
awk '/^```cpp/ && !done { inside = 1; next } /^```/ && inside { inside = 0; done = 1 } inside' lib/EMBEDDING.md >"$scratch/own.cpp"
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

# 4. Files that the commands write are not visible to git: build/ and my/ are ignored.
written=$(cat README.md tools/guides/*.md lib/EMBEDDING.md ports/README.md | grep -E '^    (build/|make |mkdir |cat |g\+\+ )|^\$ ' | grep -oE '(cat >|-o|--log|--save|--svg) +[^ "`;)]+' | sed 's/.* //' | sort -u)
[ "$(echo "$written" | wc -l)" -ge 5 ] || fail "the files that its commands write were not found"
if git rev-parse --git-dir >"$scratch/words" 2>&1; then
  for path in $written; do git check-ignore -q "$path" || fail "its commands leave $path, which git would see as new"; done
fi

# 5. make help lists every target for users.
make -s help >"$scratch/help"
for target in $(sed -n 's/^\.PHONY://p' Makefile); do
  [ "$target" = force ] || grep -q "^  make $target " "$scratch/help" || fail "make help does not list $target"
done

# 6. No line of a document has more than 140 characters, tables and generated pages included. UTF-8
# continuation bytes do not count.
wide() { LC_ALL=C awk '{ gsub(/[\200-\277]/, "") } length > 140 { print FILENAME ":" FNR " has " length " characters" }' "$@"; }
printf '%0140d\n%0141d\n' 0 0 >"$scratch/wide.md"
[ "$(wide "$scratch/wide.md" | wc -l)" = 1 ] || fail "a line of 141 characters is not told from one of 140"
if git rev-parse --git-dir >"$scratch/words" 2>&1; then
  [ "$(git ls-files '*.md' | wc -l)" -ge 10 ] || fail "the documents were not found"
  git ls-files '*.md' | while read -r page; do wide "$page"; done >"$scratch/words"
  [ ! -s "$scratch/words" ] || fail "lines beyond 140: $(cat "$scratch/words")"
fi

# 7. CITATION.cff has the keys that its format requires, and the package's version.
for key in cff-version message title authors; do grep -q "^$key:" CITATION.cff || fail "CITATION.cff: $key: is missing"; done
version=$(sed -n 's/^Version: //p' lib/reprise.pc.in)
grep -qx "version: $version" CITATION.cff || fail "CITATION.cff: version: must be $version, as in lib/reprise.pc.in"
echo "the README is true"
