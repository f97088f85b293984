# Other kinds of nets than those of cortex_m_test.sh, which reads this file: on every core they must
# have the bits of the host, the planned arena, and no more stack than planned. Differences of the C
# library's functions, or of a compiler's vectors on one core, may show only in nets without
# convolutions.
for net in transformer squeeze llama; do
  recipe=tests/ports/boards/cortex_m/nets/$net.json
  for board in mps2-an500 mps2-an386 mps3-an547; do
    on $board || fail "$net does not train on $board: $(cat "$scratch/words" "$scratch/errors")"
    [ $board != mps2-an500 ] || train_on_host $net
    [ "$(losses "$scratch/words")" = "$(losses "$scratch/of-host")" ] || fail "$net has other bits on $board: $(cat "$scratch/words" "$scratch/of-host")"
    grep -qE '^arena planned ([0-9]+) measured \1$' "$scratch/words" || fail "$net on $board: $(cat "$scratch/words")"
    awk '/^stack/ { enough = $NF <= $(NF - 2) } END { exit !enough }' "$scratch/words" || fail "$net takes more stack than planned on $board: $(cat "$scratch/words")"
  done
done
