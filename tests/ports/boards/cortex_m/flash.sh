# A part of cortex_m_test.sh, which defines `build`, `scratch` and fail(). The power of a board is
# cut 1,000 times while it trains and saves to flash; a training moves from `reprise train` to the
# board and back by `reprise bank`; a board refuses bad inputs. These tests have programs of their
# own with a net so small that a run takes a few milliseconds.
tiny=tests/ports/boards/cortex_m/tiny.json
"$build/reprise" plan $tiny -o "$scratch/tiny" >/dev/null 2>&1
proof='-std=c++20 -O2 -I. -fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000'
# board_program NAME SOURCE...: builds a program for the Cortex-M7. A -Ifolder among the sources is
# searched first for headers.
board_program() {
  name=$1; shift
  arm-none-eabi-g++ "$@" -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16 $proof -I"$scratch/tiny" -ffp-contract=off -fno-exceptions -fno-rtti -fno-threadsafe-statics \
    -ffunction-sections -fdata-sections "$build"/cortex-m/m7/ports/cortex_m/*.o "$build/cortex-m/m7/libreprise.a" \
    -T ports/cortex_m/mps2-an500.ld -nostartfiles -Wl,--gc-sections -o "$scratch/$name"
}
# run_program NAME: runs it in the scratch folder, whose files it reads and writes.
run_program() {
  (cd "$scratch" && timeout 300 qemu-system-arm -M mps2-an500 -display none -serial null -monitor none -chardev stdio,id=words \
    -semihosting-config enable=on,target=native,chardev=words -icount shift=0 -kernel "$1" </dev/null) >"$scratch/words"
}

board_program flash_cuts tests/ports/boards/cortex_m/flash_cuts.cpp
run_program flash_cuts || fail "the power is cut: $(cat "$scratch/words")"
grep -qE '^cuts 1000 of a run of [0-9]+ instructions; in the flash.s work [1-9][0-9]*; found nothing [1-9][0-9]*, the older [1-9][0-9]*, the newer [1-9][0-9]*$' "$scratch/words" \
  || fail "1,000 cuts: $(cat "$scratch/words")"
cat "$scratch/words"

# Steps 1 and 2 by `reprise train`, 3 and 4 on the board, 5 and 6 by `reprise train` again, compared
# with six steps of `reprise train`; all on the same two samples.
board_program flash_run tests/ports/boards/cortex_m/flash_run.cpp tests/ports/boards/cortex_m/semihosting_files.cpp
python3 tests/ports/boards/cortex_m/counted_samples.py "$scratch/samples.safetensors"
sed 's#{"kind": "synthetic"}#{"kind": "tensors", "path": "samples.safetensors", "shuffle": false}#; s/"steps": 4/"steps": 6/' $tiny >"$scratch/tiny.json"
sed '/"core"/d' "$scratch/tiny.json" >"$scratch/large.json"
# does ARGUMENT...: runs reprise, which must succeed.
does() { "$build/reprise" "$@" >"$scratch/said" 2>"$scratch/errors" || fail "reprise $*: $(cat "$scratch/errors")"; }
for core in tiny large; do does plan "$scratch/$core.json" --binary -o "$scratch/$core"; done
# trains PLAN STEPS SNAPSHOT [OPTION...]
trains() { plan=$1 steps=$2 to=$3; shift 3; does train "$scratch/$plan/plan.bin" --steps "$steps" --save "$scratch/$to" "$@"; }
trains tiny 6 whole
trains tiny 2 two
does bank "$scratch/tiny.json" --snapshot "$scratch/two" -o "$scratch/flash"
grep -qE ': step 2, a bank of [0-9]+ bytes, trained by kernels cpu-small/' "$scratch/said" || fail "a bank of step 2: $(cat "$scratch/said")"
run_program flash_run || fail "the board does not go on: $(cat "$scratch/words")"
grep -q '^begins behind step 2, ends behind step 4;' "$scratch/words" || fail "the board goes on: $(cat "$scratch/words")"
cat "$scratch/words"
stack=$(sed -n 's/.*stack of a save \([0-9]*\), of a load \([0-9]*\)$/\1 \2/p' "$scratch/words")
[ -n "$stack" ] && [ "${stack% *}" -le 512 ] && [ "${stack#* }" -le 512 ] || fail "more stack than flash_banks.h says: $stack"
does bank "$scratch/tiny.json" --image "$scratch/flash" -o "$scratch/four"
trains tiny 6 six --resume "$scratch/four"
for file in model.safetensors optimizer.safetensors; do
  cmp "$scratch/six/$file" "$scratch/whole/$file" || fail "$file of host, board and host is not that of the host alone"
done

# A snapshot of another core's kernels can be made a bank, but the board refuses it.
trains large 2 large-two
does bank "$scratch/large.json" --snapshot "$scratch/large-two" -o "$scratch/large-flash"
cp "$scratch/large-flash" "$scratch/flash"
! run_program flash_run || fail "the board goes on from other kernels: $(cat "$scratch/words")"
[ "$(cat "$scratch/words")" = "the bank's State was trained by other kernels, whose bits are others: take the kernel set that it names (0)" ] || fail "other kernels: $(cat "$scratch/words")"
cmp "$scratch/flash" "$scratch/large-flash" || fail 'a board that refuses a bank has changed it'

# An incomplete bank, or the bank of another net, is refused in one line, and nothing is written.
does bank "$scratch/tiny.json" --snapshot "$scratch/six" -o "$scratch/bank"
head -c 700 "$scratch/bank" >"$scratch/half"
sed 's/"channels": 2/"channels": 3/' "$scratch/tiny.json" >"$scratch/wider.json"
# refuses WORDS ARGUMENT...: requires that `reprise bank` refuses the arguments with these words.
refuses() {
  wanted=$1; shift
  ! "$build/reprise" bank "$@" -o "$scratch/none" >"$scratch/said" 2>"$scratch/errors" || fail "taken: reprise bank $*"
  [ "$(grep -c . "$scratch/errors")" = 1 ] && grep -q "$wanted" "$scratch/errors" || fail "reprise bank $*: $(cat "$scratch/errors")"
  [ ! -e "$scratch/none" ] || fail "reprise bank $* has left something"
}
refuses 'half: holds no whole bank' "$scratch/tiny.json" --image "$scratch/half"
refuses "bank: the bank holds another plan's State" "$scratch/wider.json" --image "$scratch/bank"
refuses 'the snapshot is of another model' "$scratch/wider.json" --snapshot "$scratch/six"
refuses 'training.json: ' "$scratch/tiny.json" --snapshot "$scratch/tiny"

board_program bad_inputs tests/ports/boards/cortex_m/bad_inputs.cpp
run_program bad_inputs || fail "bad inputs: $(cat "$scratch/words")"
cat >"$scratch/refusals" <<'WORDS'
arena not aligned: the arena must be aligned to 256 bytes
arena too small: the arena must hold the plan's arena_bytes
plan of a card: the plan was made for another backend
plan of another format: the plan's format version is not this library's; plan again
all as it should be: taken
a step: taken
a pixel that is no number: the loss is not finite
a label that is no class: a label must be in [0, classes), or -100 for none
a step: taken
WORDS
diff "$scratch/refusals" "$scratch/words" || fail 'a board refuses in other words'

# The program of run-board with samples that are no numbers, or with the plan of a card: one line.
mkdir -p "$scratch/broken/ports/cortex_m"
sed 's/0x1p-24f;/__builtin_nanf("");/' ports/cortex_m/counted_batch.h >"$scratch/broken/ports/cortex_m/counted_batch.h"
sed 's/"tiny-board"/"tiny-card", "backend": "cuda"/; /"core"/d' $tiny >"$scratch/card.json"
does plan "$scratch/card.json" -o "$scratch/card"
does plan "$scratch/large.json" -o "$scratch/broken"
# ends_with WORDS FOLDER: builds train.cpp with the headers of that folder; it must end with these
# words.
ends_with() {
  board_program train -I"$2" ports/cortex_m/train.cpp
  ! run_program train || fail "$2: the program of run-board trains: $(cat "$scratch/words")"
  [ "$(cat "$scratch/words")" = "$1" ] || fail "$2: the program of run-board: $(cat "$scratch/words")"
}
ends_with 'the loss is not finite (1)' "$scratch/broken"
ends_with 'the plan was made for another backend (0)' "$scratch/card"
