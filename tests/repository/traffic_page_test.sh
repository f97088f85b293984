#!/bin/sh
# Tests the page of `make traffic`: invented counts become its tables, and invented measurements are
# shown next to the counts' predictions. Broken input is refused in one line with nothing written.
# The repository's own TRAFFIC.md must have the figures of its ROOFLINE.md. The page itself is not
# made here, because its simulation takes minutes.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "traffic_page: $1" >&2; exit 1; }
page=$scratch/TRAFFIC.md roofline=$scratch/ROOFLINE.md
holds() { grep -qxF -e "$1" "$page" || fail "the page lacks \"$1\" but has: $(grep '^|' "$page" | tail -n 20)"; }
measure() { tests/bench/traffic_measured.py "$page" "$roofline" >"$scratch/words" 2>&1; }
refuses() {
  cp "$page" "$scratch/before"
  if measure; then fail "takes $1"; fi
  [ "$(wc -l <"$scratch/words")" = 1 ] && grep -qF "$2" "$scratch/words" || fail "of $1 it says: $(cat "$scratch/words")"
  cmp -s "$page" "$scratch/before" || fail "$1 was refused, but something was written"
}

# 1. Counts: runs, flops, bytes that must move, accesses; then for each of four cores lines fetched
# and written at three levels. By hand: 64 MFLOP that move 6.4 MB are 100 bytes a kflop, 1.56 cycles
# at 64 bytes a cycle next to 15.6 of arithmetic.
levels='100000\t0\t50000\t0\t10000\t10000'
kernel() { printf "gpt2-small\tavx512\t$1\t$2\t$3\t$4\t$5\t$levels\t$levels\t$levels\t$levels\n"; }
{ kernel 'linear.forward f32[8,8]' 1 64000000 1000 1000000; kernel 'add.forward f32[8]' 2 0 3200000 1000; } >"$scratch/avx512.tsv"
mkdir "$scratch/dumps"
: >"$scratch/checked.tsv"
tests/bench/traffic.py table "$page" "$scratch/checked.tsv" "$scratch/dumps" "$scratch/avx512.tsv" || fail "no page of made-up counts"
holds '| kernel | runs | MFLOP | flops an access | Skylake-SP | Xeon with AMX | Zen 4 | Zen 5 |'
holds '| linear.forward | 1 | 64.0 | 64.0 | memory 0.51 | memory 0.33 | memory 0.14 | memory 0.19 |'
holds '| bytes a kflop: L2, L3, memory | Skylake-SP | Xeon with AMX | Zen 4 | Zen 5 |'
holds '| linear.forward | 100.0, 50.0, 20.0 | 100.0, 50.0, 20.0 | 100.0, 50.0, 20.0 | 100.0, 50.0, 20.0 |'
holds '| without products: L2, L3, memory | runs | MB it must move | Skylake-SP | Xeon with AMX | Zen 4 | Zen 5 |'
holds '| add.forward | 2 | 3.2 | 2.00, 1.00, 0.40 | 2.00, 1.00, 0.40 | 2.00, 1.00, 0.40 | 2.00, 1.00, 0.40 |'

# 2. Measured next to predicted: Zen 5's parts are 0.11 + 0.10 + 0.19 of the arithmetic, so 71% if
# nothing overlaps.
measured() {
  printf '## %s\n```\n== gpt2-small, load 1\n runs again GFLOP MB ms %% step GFLOP/s %% peak GB/s %% bw bound %% roof  kernel\n' "$1"
  printf ' 48 0 1.0 1.0 1.0 20.6 1.0 %s 1.0 5.4 compute 82.6  %s\n' "$2" linear.forward - gelu.forward
  printf '\n runs again GFLOP MB ms %% step GFLOP/s %% peak GB/s %% bw bound %% roof  call\n'
  printf ' 1 0 1.0 1.0 1.0 1.0 1.0 7.0 1.0 1.0 compute 1.0  linear.forward\n```\n'
}
{ measured "Zen 5" 82.6; measured "Zen 4" 40.2; } >"$roofline"
measure || fail "refuses: $(cat "$scratch/words")"
holds '| net | kernel | Zen 4: predicted, measured | Zen 5: predicted, measured |'
holds '| gpt2-small | linear.forward | 76 to 100, **40** | 71 to 100, 83 |'
cp "$page" "$scratch/once"
measure && cmp -s "$page" "$scratch/once" || fail "the same measurements again write something else"
sed -i 's/ 82\.6 1\.0 5\.4/ 90.9 1.0 5.4/' "$roofline"
measure && holds '| gpt2-small | linear.forward | 76 to 100, **40** | 71 to 100, 91 |'
[ "$(grep -c '^## Predicted and measured$' "$page")" = 1 ] || fail "the section was not replaced"

# 3. Broken input.
measured "Zen 9" 80.0 >>"$roofline"
refuses "a core that the model lacks" 'ROOFLINE.md: the section "Zen 9" is none of the cores'
: >"$roofline"
refuses "a page without measurements" "ROOFLINE.md measured no kernel"
rm "$roofline"
refuses "a page that is not there" "No such file or directory"
cp tests/bench/pages/ROOFLINE.md "$roofline"
sed -i 's/^## Kernels$/## Kernel/' "$page"
refuses "a page without its tables" 'there is no line "## Kernels"'
status=0
tests/bench/traffic_measured.py one >"$scratch/words" 2>&1 || status=$?
[ $status = 2 ] || fail "of one page it says, with status $status: $(cat "$scratch/words")"

# 4. The repository's own pages.
cp tests/bench/pages/TRAFFIC.md "$page"
measure || fail "of the repository's pages it says: $(cat "$scratch/words")"
cmp -s "$page" tests/bench/pages/TRAFFIC.md \
  || fail "TRAFFIC.md has not what ROOFLINE.md measured: run tests/bench/traffic_measured.py"
echo "the page of traffic is as its counts and measurements are"
