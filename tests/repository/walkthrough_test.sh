#!/bin/sh
# Tests lib/WALKTHROUGH.md: its commands print the output on the page, its rows are in plan.h, its
# files exist. Every indented line of the page that calls build/reprise is run, and must print each
# line of the block that follows. Times and lines that begin with "..." are not compared. BUILD as
# for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
page=lib/WALKTHROUGH.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tiny-gpt"
fail() { echo "walkthrough: $1" >&2; exit 1; }

# 1. The recipe is the project's own.
awk '/^```json/ { inside = 1; next } /^```/ && inside { exit } inside' $page | cmp -s - tools/recipes/tiny-gpt.json || fail "the recipe on the page is not tools/recipes/tiny-gpt.json"

# 2. Commands and their output. A block belongs to a command if at most empty lines separate them.
awk -v out="$scratch" '
  /^    build\/reprise / { n++; print substr($0, 5) >(out "/command." n); armed = 1; next }
  /^```$/ && armed { armed = 0; inside = 1; next }
  /^```/ && inside { inside = 0; next }
  inside { print >(out "/shown." n) }
  !inside && NF > 0 { armed = 0 }' $page
n=0
while [ -e "$scratch/command.$((n + 1))" ]; do
  n=$((n + 1))
  command=$(sed -e "s|^build/reprise|$build/reprise|" -e "s|build/tiny-gpt|$scratch/tiny-gpt|g" "$scratch/command.$n")
  sh -c "$command" >"$scratch/printed" 2>&1 || fail "fails: $command: $(cat "$scratch/printed")"
  [ -e "$scratch/shown.$n" ] || continue
  grep -vE '^(solve_seconds| *\.\.\.|$)' "$scratch/shown.$n" | while IFS= read -r line; do
    grep -qxF -e "$line" "$scratch/printed" || fail "$(cat "$scratch/command.$n") no longer prints \"$line\""
  done
done
[ "$n" -ge 4 ] || fail "$n commands were found, not four"

# 3. Rows of plan.h.
grep '^  /\*' $page >"$scratch/rows"
[ "$(wc -l <"$scratch/rows")" -ge 2 ] || fail "the rows were not found"
while IFS= read -r line; do grep -qxF -e "$line" "$scratch/tiny-gpt/plan.h" || fail "plan.h has no line \"$line\""; done <"$scratch/rows"

# 4. Files that it names.
grep -oE '`(lib|tools|tests|ports)/[A-Za-z0-9_./-]+`' $page | tr -d '`' | sort -u | while read -r path; do [ -e "$path" ] || fail "names $path, which is not there"; done
echo "the walk-through is true"
