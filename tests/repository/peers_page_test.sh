#!/bin/sh
# Tests the page of `make bench-peers`: kept parts become a processor's section and its row of
# README. A second run of the same processor replaces both, another processor is appended, and other
# sections stay byte for byte. A broken part is refused in one line with nothing written. The parts
# in tests/data/peers are invented: no processor has these figures.
set -eu
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "peers_page: $1" >&2; exit 1; }
page=$scratch/PEERS.md readme=$scratch/README.md parts=$scratch/parts
cp -r tests/data/peers "$parts"
write() {
  PYTHONDONTWRITEBYTECODE=1 python3 tests/bench/peers/peers_page.py "${1:-$parts}" --page "$page" --readme "$readme" \
    >"$scratch/words" 2>&1
}
write_well() { write "$@" || fail "refuses: $(cat "$scratch/words")"; }
holds() { grep -qxF -e "$2" "$1" || fail "$(basename "$1") lacks \"$2\" but has: $(grep -n '[E]xample 9' -A 99 "$1" | head -60)"; }
others() { sed "/^| $1[ ,]/d" "$readme"; }

# 1. The repository's own page and README: everything except this processor's section and row stays.
cp tests/bench/pages/PEERS.md README.md "$scratch"
write_well
[ "$(head -c "$(wc -c <tests/bench/pages/PEERS.md)" "$page" | cksum)" = "$(cksum <tests/bench/pages/PEERS.md)" ] \
  || fail "other sections, or the head, have changed"
others "Example 9" | cmp -s - README.md || fail "README changed beyond the row: $(others "Example 9" | diff - README.md)"
[ "$(grep -c '^| Example 9 (Made Up) |' "$readme")" = 1 ] || fail "README has not one row of the processor"

# 2. Content of section and row, computed by hand: half of eager's time at 31.2 GFLOP/0.2 s of 200
# is 80% of the peak.
holds "$page" "## Example 9 (Made Up)"
holds "$page" "| ResNet-20, 128 | PyTorch | 0.400 (0.350) | 1.00 | 0.80 | 500 | 1.00 | 40 |"
holds "$page" "| | everything stored, within 0.5 too | 0.200 (0.190) | 0.50 | 0.40 | 160 | 0.32 | 80 |"
holds "$page" "| | within 0.6 of PyTorch's memory | 5.500 (5.400) | **1.10** | - | 1900 | 0.59 | 71 |"
holds "$page" "| | torch.compile does not compile (RecursionError) | | | | | | |"
holds "$page" "| 512, 512, 512 | 100 | 88, 80 | 80, 79 | 80, 75 | 70, 60 | 1.10, 1.01 |"
holds "$page" "| 1024, 1024, 1024 | 100 | 88, 80 | 80, 79 | 95, 75 | 70, 60 | **0.93**, 1.01 |"
holds "$page" "| 3.000, 2.24 | 1.500, 1.08 | 0.50 | 0.48 | 0.0003% |"
holds "$page" "Not measured here: ResNet-18, ResNet-50, ResNet-990, GPT-2 small."
holds "$readme" "| Example 9 (Made Up) | 0.50 (1) | 0.40 (1) | 0.32 (1) | 80 (1) | 1.10 (1) | 0.59 (1) | 0.93-1.10 |"
if LC_ALL=C awk 'length > 140' "$page" "$readme" | grep -q .; then fail "lines beyond 140: $(awk 'length > 140' "$page" "$readme")"; fi

# 3. The same parts again change nothing; another processor is appended; the first one's next run
# replaces its own section, wherever it is.
cp "$page" "$scratch/page.before" && cp "$readme" "$scratch/readme.before"
write_well
cmp -s "$page" "$scratch/page.before" && cmp -s "$readme" "$scratch/readme.before" || fail "the same parts again write something else"
cp -r "$parts" "$scratch/other" && sed -i 's/Example 9/Example 10/' "$scratch/other"/*.json
write_well "$scratch/other"
[ "$(head -c "$(wc -c <"$scratch/page.before")" "$page" | cksum)" = "$(cksum <"$scratch/page.before")" ] || fail "another processor's section is not appended"
others "Example 10" | cmp -s - "$scratch/readme.before" || fail "another processor's row changed others"
section() { awk -v name="## $1" '/^## / { inside = $0 == name } inside' "$page"; }
section "Example 10 (Made Up)" >"$scratch/section.before"
sed -i -e 's/"others": 0.01/"others": 0.3/' -e 's/"date": .*/"date": "2026-11-28",/' "$parts/lm.json"
write_well
section "Example 10 (Made Up)" | cmp -s - "$scratch/section.before" || fail "the next section has changed"
[ "$(grep -c '^## Example 9 (Made Up)$' "$page")" = 1 ] || fail "the section was not replaced"
grep -q '^Measured 2026-11-27 to 2026-11-28: ' "$page" || fail "the dates of the parts are missing"
grep -q 'Other programs were busy.* lm 30%\.\*\*' "$page" || fail "a busy machine is not named on the page"
holds "$readme" "| Example 9 (Made Up), busy | 0.50 (1) | 0.40 (1) | 0.32 (1) | 80 (1) | 1.10 (1) | 0.59 (1) | 0.93-1.10 |"
[ "$(grep -c '^| Example 9' "$readme")" = 1 ] || fail "the row was not replaced"

# 4. A broken part is refused in one line that names the file, and nothing is written.
cp "$page" "$scratch/page.before" && cp "$readme" "$scratch/readme.before"
refuses() {  # WORDS FILE SED-SCRIPT: changes a part's file by the script
  rm -rf "$scratch/broken" && cp -r "$parts" "$scratch/broken" && sed -i "$3" "$scratch/broken/$2"
  write "$scratch/broken" && fail "takes $2 after $3"
  [ "$(wc -l <"$scratch/words")" = 1 ] && grep -qF "$2: $1" "$scratch/words" || fail "of $2 after $3 it says: $(cat "$scratch/words")"
  cmp -s "$page" "$scratch/page.before" && cmp -s "$readme" "$scratch/readme.before" || fail "$2 after $3 was refused, but something was written"
}
refuses 'cannot be read as JSON: ' lm.json '5,$d'
refuses 'cannot be read as JSON: ' sgemm-1.json 'd'
refuses 'lacks found.runs.quarter' resnet20-f32.json 's/"quarter"/"fifth"/'
refuses 'found.runs.all.median is 0, not a number above zero' resnet20-f32.json 's/"median": 0.2,/"median": 0,/'
refuses 'found.runs.all.median is NaN' resnet20-f32.json 's/"median": 0.2,/"median": NaN,/'
refuses 'lacks machine.core_flops' lm.json 's/core_flops/flops/'
refuses 'found.shapes is not a list' sgemm-1.json 's/"ours"/"theirs"/'
refuses 'found.shapes is not a list' sgemm-1.json 's/"peak": 100000000000.0/"peak": "much"/'
refuses 'others is not a number' lm.json 's/"others": 0.3/"others": null/'
refuses 'is of Example 8 (Made Up), but ' lm.json 's/Example 9/Example 8/'
refuses 'processor.name has characters' gpt2-small-bf16.json 's/Example 9/Example | 9/'
rm "$page"
write_well
cmp -s "$page" "$scratch/page.before" && fail "a page that was not there has what it had"
[ "$(head -n 1 "$page")" = "$(head -n 1 tests/bench/pages/PEERS.md)" ] && holds "$page" "## Example 9 (Made Up)" \
  || fail "a page is not begun"
cp "$page" "$scratch/page.before"
mkdir "$scratch/none"
write "$scratch/none" && fail "a folder without parts makes a page"
grep -q 'holds no part' "$scratch/words" || fail "of a folder without parts it says: $(cat "$scratch/words")"
sed -i '/make bench-peers writes these rows/d' "$readme" && cp "$readme" "$scratch/readme.before"
write && fail "a README without marks is taken"
grep -q 'README.md: lacks the lines' "$scratch/words" && cmp -s "$page" "$scratch/page.before" || fail "of a README without marks it says: $(cat "$scratch/words")"

# 5. A kept part is not measured again; for an unknown part the error lists the existing ones.
mkdir -p "$scratch/build/peers" && cp -r tests/data/peers "$scratch/build/peers/example-9-made-up"
measure() {
  PYTHONDONTWRITEBYTECODE=1 BUILD=$scratch/build python3 tests/bench/peers/peers_bench.py --processor "Example 9 (Made Up)" \
    "$@" >"$scratch/words" 2>&1
}
measure resnet20-f32 gpt2-small-bf16 lm || fail "kept parts are measured again: $(cat "$scratch/words")"
[ "$(grep -c ' is kept (rounds: 1): ' "$scratch/words")" = 3 ] || fail "of three kept parts it says: $(cat "$scratch/words")"
measure resnet-20 && fail "takes resnet-20 for a part"
grep -q 'resnet-20: must be of sgemm-1, .*resnet20-f32, ' "$scratch/words" || fail "of resnet-20 it says: $(cat "$scratch/words")"
echo "the page of peers is as its parts are"
