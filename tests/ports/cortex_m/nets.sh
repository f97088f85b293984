# Other kinds of nets than the suite's own, on every core: the bits of the host, the arena that was planned, and no more stack. Read by cortex_m_test.sh.
# Here because a function of the C library's, or a compiler's way with one core's vectors, shows where no convolution goes.
for net in transformer squeeze llama; do
  recipe=tests/ports/cortex_m/nets/$net.json
  for board in mps2-an500 mps2-an386 mps3-an547; do
    on $board || fail "$net does not train on $board: $(cat "$scratch/words" "$scratch/errors")"
    [ $board != mps2-an500 ] || train_on_host $net
    [ "$(losses "$scratch/words")" = "$(losses "$scratch/of-host")" ] || fail "$net has other bits on $board: $(cat "$scratch/words" "$scratch/of-host")"
    grep -qE '^arena planned ([0-9]+) measured \1$' "$scratch/words" || fail "$net on $board: $(cat "$scratch/words")"
    awk '/^stack/ { enough = $NF <= $(NF - 2) } END { exit !enough }' "$scratch/words" || fail "$net takes more stack than planned on $board: $(cat "$scratch/words")"
  done
done
