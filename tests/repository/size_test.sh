#!/bin/sh
# Tests `make size` on small programs: frames are those that the compiler states, bytes are those in
# the source, and members are those that were linked. A diff names each change and nothing else.
# BUILD and CXX as for make.
set -eu
cd "$(dirname "$0")/../.."
compiler=${CXX:-g++}
size=$PWD/tests/repository/size.py
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
fail() { echo "size: $1" >&2; exit 1; }
says() { grep -qF -e "$1" "$2" || fail "\"$1\" is missing in: $(cat "$2")"; }
# value FILE KIND NAME: prints the bytes of the only symbol whose name begins with NAME.
value() { python3 -c 'import json, sys
found = [size for name, size in json.load(open(sys.argv[1]))[sys.argv[2]].items() if name.startswith(sys.argv[3])]
assert len(found) == 1, (sys.argv, found)
print(found[0])' "$1" "$2" "$3"; }
expect() { [ "$1" = "$2" ] || fail "$3: $1, not $2"; }

# A table in two objects: one copy is linked.
printf 'inline const int shared[500] = {1, 2, 3};\n' >shared.h
cat >one.cpp <<'CPP'
#include "shared.h"
extern const int table[1000];
const int table[1000] = {1, 2, 3};
static int counts[300];
void use(void*);
void small(int i) { counts[i] += shared[i]; }
void large(int i) { char bytes[5000]; use(bytes); small(i + bytes[i]); use(bytes); }
void deep(int i, long a, long b, long c) {
  int many[LENGTH];
  use(many);
  for (int k = 0; k < i; ++k) { use(many + k); a += many[k] * b; c ^= a; }
  use(&a);
  many[0] = static_cast<int>(a + b + c);
  use(many);
}
CPP
printf '#include "shared.h"\nvoid use(void* i) { *static_cast<int*>(i) = shared[*static_cast<int*>(i)]; }\n' >two.cpp
printf 'int never_linked(int i) { return i * 7 + 1; }\n' >three.cpp
printf 'void large(int); int main() { large(1); }\n' >main.cpp
for part in one two three main; do "$compiler" -std=c++20 -O2 -DLENGTH=9000 -fstack-usage -c $part.cpp; done
ar rcs libown.a one.o two.o three.o
"$compiler" main.o libown.a -o program -Wl,-Map=program.map
"$size" measure libown.a --map program.map --archive libown.a -o before.json >shown.txt

# 1. Tables and data have the bytes of their declarations.
expect "$(value before.json tables table)" 4000 "the table"
expect "$(value before.json data counts)" 1200 "the counts"
says "4000  table" shown.txt
# 2. Frames are those of the compiler, apart from bytes that it does not count (the return address,
# an alignment).
for name in large deep; do
  stated=$(awk -F'\t' -v name="$name(" 'index($1, name) { print $2 }' one.su)
  found=$(value before.json stack "$name(")
  [ "$found" -ge "$((stated - 16))" ] && [ "$found" -le "$((stated + 128))" ] \
    || fail "the frame of $name: $found bytes, where the compiler states $stated"
done
# 3. A program has only the members that it links.
python3 - <<'PY' || fail "the members that were linked: $(cat shown.txt)"
import json
linked = json.load(open("before.json"))["linked"]
assert sorted(linked) == ["one.o", "two.o"], linked
one, two = linked["one.o"], linked["two.o"]
assert one["tables"] == 4000 + 2000 and two["tables"] == 0, linked
assert one["data"] >= 1200 and 0 < one["code"] < 2000, linked
PY
says "of the library in all" shown.txt
# 4. A diff names each change.
"$size" diff before.json before.json >same.txt
expect "$(cat same.txt)" "nothing differs" "a build beside itself"
sed -i 's/table\[1000\]/table[1100]/' one.cpp
"$compiler" -std=c++20 -O2 -DLENGTH=10000 -c one.cpp
ar rcs libown.a one.o
"$compiler" main.o libown.a -o program -Wl,-Map=program.map
"$size" measure libown.a --map program.map --archive libown.a -o after.json >shown.txt
"$size" diff before.json after.json >diff.txt
says "   +400     4000     4400  table" diff.txt
grep -qE '^ *\+40[0-9]{2}  .*  deep\(' diff.txt || fail "deep's frame has grown by 4000 bytes: $(cat diff.txt)"
says "linked of one.o" diff.txt
! grep -qE 'large\(|counts|two\.o|never_linked' diff.txt || fail "the diff names what has not changed: $(cat diff.txt)"
# 5. A file that is no object is refused.
! "$size" measure one.cpp -o none.json >/dev/null 2>words.txt || fail "a source was measured"
[ ! -e none.json ] || fail "a source left none.json"
! "$size" measure libown.a --map one.cpp -o none.json >/dev/null 2>words.txt || fail "a map was read from a source"
says "no linker's map" words.txt
echo "sizes are measured as they are"
