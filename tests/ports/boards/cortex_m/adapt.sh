# A part of cortex_m_test.sh, which defines `build`, `scratch`, fail() and losses(): a short `make
# adapt-board`. A net that the host has trained is trained further on the board with rotated images
# and classifies more of them correctly afterwards. The same program on the host, and `reprise
# train`, have the same losses. No other test trains on a board with meaningful data.
recipes=tools/recipes/small
images=adapt-test
sed 's#"path": "[^"]*"#"path": "'$images'"#; s/"fashion-rotated"/"'$images'"/' $recipes/fashion-rotated.json >"$scratch/$images.json"
flashed=$build/cortex-m/mps2-an500/$images
tools/run/pictures/rotated_fashion.py "$flashed" 200
ln -s "$(realpath "$flashed")" "$scratch/$images"
# quietly COMMAND...: runs it and prints its output only if it fails.
quietly() { "$@" >"$scratch/said" 2>&1 || fail "$*: $(cat "$scratch/said")"; }
quietly "$build/reprise" plan $recipes/fashion-upright.json --binary -o "$scratch/upright-plan"
quietly "$build/reprise" plan "$scratch/$images.json" --binary -o "$scratch/adapt-plan"
quietly "$build/reprise" train "$scratch/upright-plan/plan.bin" --steps 120 --save "$scratch/upright"
quietly "$build/reprise" bank "$scratch/$images.json" --snapshot "$scratch/upright" -o "$flashed/bank"
recipe=$scratch/$images.json
on mps2-an500 PROGRAM=ports/cortex_m/adapt.cpp || fail "the board does not adapt: $(cat "$scratch/words" "$scratch/errors")"
cp "$scratch/words" "$scratch/adapted"
[ "$(losses "$scratch/adapted" | wc -l)" = 40 ] || fail "not twice 200 images in steps of 10: $(cat "$scratch/adapted")"
grep -qE '^arena planned ([0-9]+) measured \1$' "$scratch/adapted" || fail "another arena than planned: $(cat "$scratch/adapted")"
correct() { sed -n "s/^$1: correct \([0-9]*\) of 200, .*/\1/p" "$scratch/adapted"; }
[ "$(correct after)" -ge $(($(correct before) + 60)) ] || fail "the net has not adapted: $(cat "$scratch/adapted")"

"${CXX:-g++}" -std=c++20 -O2 -I. -I"$flashed" -Wa,-I"$flashed" -fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000 \
  ports/cortex_m/adapt.cpp ports/cortex_m/flash_banks.cpp tests/ports/boards/cortex_m/host_board.cpp \
  "$build/libreprise.a" -o "$scratch/adapt" -lpthread
"$scratch/adapt" >"$scratch/of-host" || fail "the host does not adapt: $(cat "$scratch/of-host")"
bits() { grep ' bits ' "$1"; }
[ "$(bits "$scratch/adapted")" = "$(bits "$scratch/of-host")" ] || fail "other bits than the host's: $(cat "$scratch/adapted" "$scratch/of-host")"

quietly "$build/reprise" train "$scratch/adapt-plan/plan.bin" --resume "$scratch/upright" --steps 160 --log "$scratch/log"
sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([0-9.e-]*\).*/\1 \2/p' "$scratch/log" >"$scratch/log-losses"
sed -n 's/^step \([0-9]*\) loss \([0-9.]*\) .*/\1 \2/p' "$scratch/adapted" | paste -d ' ' "$scratch/log-losses" - \
  | awk '$1 != $3 || $2 - $4 > 1e-6 || $4 - $2 > 1e-6 { exit 1 } END { exit NR != 40 }' || fail "other losses than those of reprise train: $(cat "$scratch/log" "$scratch/adapted")"
sed -n 's/^\(before\|after\): \(correct [0-9]* of 200\).*/rotated images, \1: \2/p' "$scratch/adapted"
