#!/bin/sh
# Tests that the commands of README and of the guides run and print what the pages show, and that
# the files they name are there (documents.py). BUILD as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "documents: $1" >&2; exit 1; }
[ "$(wc -l <README.md)" -le 160 ] || fail "README.md has more than 160 lines"

# 1. A page with a fault is refused, with the fault's name.
refuses() {  # WORDS LINE...: a page of these lines
  words=$1
  shift
  printf '%s\n' "$@" >"$scratch/page.md"
  if tests/repository/documents.py "$build" "$scratch/page.md" >"$scratch/said" 2>&1; then fail "takes: $*"; fi
  grep -qF -e "$words" "$scratch/said" || fail "of $* it says: $(cat "$scratch/said")"
}
name='build/reprise name tools/recipes/tiny-gpt.json'
refuses 'no longer prints "huge-gpt' "    $name" '' '```' 'huge-gpt' '```'
refuses 'no longer prints this' '```' "\$ $name" 'huge-gpt' '```'
refuses 'fails with 2' "    $name --nonsense"
refuses '--nonsense is no option' '    build/reprise fit my/absent.json --nonsense'
refuses '--nonsense is no option' '    build/net/train --nonsense'
refuses 'nonsense is no target' '    make nonsense'
refuses 'NONSENSE is no variable' '    make run NONSENSE=1'
refuses 'names lib/absent.h' 'See `lib/absent.h`.'
refuses 'links to absent.md' 'See [this](absent.md).'

# 2. The project's own pages have none, and many of their commands run.
tests/repository/documents.py "$build" README.md tools/guides/*.md ports/README.md lib/EMBEDDING.md >"$scratch/said"
cat "$scratch/said"
ran=$(sed -n 's/.*: \([0-9]*\) commands were run.*/\1/p' "$scratch/said")
[ "$ran" -ge 20 ] || fail "fewer than 20 commands were run"
