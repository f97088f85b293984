#!/bin/sh
# Tests that comments stay readable: comments.py counts, for each top-level folder, violations of
# CONTRIBUTING.md, and no count may exceed its limit in comments_limits.txt. A limit may only fall:
# after a count has fallen, commit the output of comments.py. Tests also that commit messages have
# the form that CONTRIBUTING.md requires, from the first commit after that rule.
set -eu
cd "$(dirname "$0")/../.."
limits=tests/repository/comments_limits.txt
first_judged=19c61b5d  # subjects and bodies are judged after this commit
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "comments: $1" >&2; exit 1; }

# 1. The counter finds each kind of fault in a file that has one of each, also in a later paragraph.
{
  printf '// %s a thing.\nint of_thing(int x);\n' Of
  printf 'int x;  // %s it is.\n' What
  printf '// Returns one.\nint one(int x);\n'
  printf '%0121d\n' 0
  printf '// %0100d\n' 0
  printf '\n// A box.\n//\n// %s is in the box.\n' What
} >"$scratch/faults.h"
tests/repository/comments.py "$scratch/faults.h" >"$scratch/found"
for kind in "1: comment has an unclear start" "1: comment on a function starts with no verb" \
            "3: comment has an unclear start" "6: line is wider than 120" "7: comment is wider than 100" \
            "11: comment has an unclear start"; do
  grep -qF -e ":$kind" "$scratch/found" || fail "the counter does not find \"$kind\": $(cat "$scratch/found")"
done
[ "$(wc -l <"$scratch/found")" = 6 ] || fail "the counter finds more than six faults: $(cat "$scratch/found")"
printf '// %s a board trains.\n// %s is no start.\n{}\n' What That >"$scratch/faults.json"
printf 'true # no comment line\n# %s make needs.\n' What >"$scratch/faults.sh"
[ "$(tests/repository/comments.py "$scratch/faults.json" "$scratch/faults.sh" | grep -c 'unclear start')" = 2 ] \
  || fail "the counter does not find an unclear start in JSON and in a script"

git rev-parse --git-dir >"$scratch/words" 2>&1 || { echo "skipped: no git repository"; exit 0; }

# 2. No count exceeds its limit, and nine of ten comments on functions in headers start with a verb.
tests/repository/comments.py >"$scratch/counts"
python3 - "$limits" "$scratch/counts" <<'PYTHON' || fail "tests/repository/comments.py FILE lists the places"
import sys
def table(name):
    rows = [line.split() for line in open(name)][1:]
    return {row[0]: [int(cell) for cell in row[1:]] for row in rows}
limits, counts, wrong = table(sys.argv[1]), table(sys.argv[2]), False
kinds = ("comments with an unclear start", "comments on functions without a verb", "", "wide lines", "wide comments")
assert set(limits) == set(counts) and len(counts) >= 5, (limits, counts)
for folder, row in counts.items():
    for n, kind in enumerate(kinds):
        if kind and row[n] > limits[folder][n]:
            print(f"comments: {folder} has {row[n]} {kind}, more than its {limits[folder][n]}", file=sys.stderr)
            wrong = True
    if row[1] * 10 > row[2]:
        print(f"comments: {folder}: {row[1]} of {row[2]} comments on functions start with no verb", file=sys.stderr)
        wrong = True
sys.exit(wrong)
PYTHON

# 3. Commit messages: "area: verb what" of at most 72 characters, an empty line, and a body.
git cat-file -e "$first_judged^{commit}" 2>"$scratch/words" || { echo "skipped: a clone without the history"; exit 0; }
git log --no-merges --format='%h%x09%s%x09%b%x00' "$first_judged..HEAD" >"$scratch/log"
python3 - "$scratch/log" <<'PYTHON' || fail "CONTRIBUTING.md says how a commit message looks"
import re, sys
wrong = False
for entry in open(sys.argv[1], encoding="utf-8").read().split("\0"):
    if not entry.strip():
        continue
    commit, subject, body = entry.strip("\n").split("\t", 2)
    fault = ("has a subject of more than 72 characters" if len(subject) > 72 else
             "has no area" if not re.match(r"[a-z][\w/., -]*: [a-z\"]", subject) else
             "has no body" if not body.strip() else "")
    if fault:
        print(f"commit {commit} ({subject}) {fault}", file=sys.stderr)
        wrong = True
sys.exit(wrong)
PYTHON
echo "comments and commit messages keep to CONTRIBUTING.md"
