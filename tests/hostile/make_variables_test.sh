#!/usr/bin/env bash
# Requires that no value of a Makefile variable is executed. A value that must be a number or a
# known name is refused before anything is fetched or built. Any other value reaches the started
# program as one word. Stub programs that record their arguments replace the programs that the goals
# would start.
set -eu
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "make's variables: $1" >&2; exit 1; }
build=$scratch/build words=$scratch/words
mkdir -p "$scratch/bin"
cat >"$scratch/bin/stub" <<'SH'
#!/bin/sh
case "${1:-}" in name) case $2 in --backend) echo cpu ;; --ranks) echo 1 ;; *) echo net ;; esac; exit ;; esac
for word; do printf '<%s>\n' "$word"; done >>"$WORDS"
SH
chmod +x "$scratch/bin/stub"
programs="reprise tests/bench/chen_bench parity-venv/bin/python"
made="libreprise.a libtools.a cortex-m/m7/libreprise.a packages/run packages/cortex-m packages/peers packages/mpi parity-venv/ready data/chatterbot.jsonl
      tests/bench/sgemm_bench tests/bench/machine_bench data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
old=()
for name in $programs $made; do
  mkdir -p "$build/$(dirname "$name")"
  cp "$scratch/bin/stub" "$build/$name"
  old+=(-o "$build/$name")
done
for name in arm-none-eabi-g++ qemu-system-arm python3; do cp "$scratch/bin/stub" "$scratch/bin/$name"; done
cp tools/recipes/small/resnet8.json "$scratch/net.json"

# Runs a goal. Its prerequisites count as up to date, so only the commands of the goal itself run.
run_make() {
  : >"$words"
  env PATH="$scratch/bin:$PATH" WORDS="$words" MAKEFLAGS= MAKELEVEL=0 timeout 100 make -s BUILD="$build" "${old[@]}" RECIPE="$scratch/net.json" "$@" >"$scratch/said" 2>&1
}
nothing_ran() { [ ! -e "$scratch/ran" ] || fail "$1 runs what it holds"; }

# Values that a shell, make, sed or a compiler would read as more than one word.
plant="touch $scratch/ran"
values=("x; $plant" "x | $plant #" "\$($plant)" "\`$plant\`" "\$(shell $plant)" "'; $plant; '" "\"; $plant; \"" 'x\' 'a  b' "1,-T,x|e;$plant" "1"$'\n\t'"$plant")

# 1. Variables that must be numbers or known names refuse the values above. make gets two of the
# values for each variable; tools/make_variables.sh gets all of them.
is_refused() {  # NAME=VALUE
  nothing_ran "$1"
  [ ! -s "$words" ] || fail "$1 reaches $(cat "$words")"
  [ "$(wc -l <"$scratch/said")" = 1 ] && grep -q "${1%%=*}" "$scratch/said" || fail "$1 is refused so: $(cat "$scratch/said")"
}
n=0
for each in 'fit RANKS' 'soak SOAK' 'bench-ranks ROUNDS' 'chen TURNS' 'run-board STACK' 'run-board BOARD' 'board TARGET' 'all BUILD' 'all REPRISE' 'fit RECIPE'; do
  read -r goal name <<<"$each"
  for value in "\$(shell $plant)" "${values[$((n++ % ${#values[@]}))]}"; do
    if run_make "$goal" "$name=$value"; then fail "$name=$value is taken"; fi
    is_refused "$name=$value"
  done
  for value in "${values[@]}"; do
    env BUILD=build REPRISE=build/reprise RECIPE=Makefile TARGET=jetson "$name=$value" tools/make_variables.sh "$goal" >"$scratch/said" 2>&1
    is_refused "$name=$value"
  done
done

# 2. Any other text reaches the started program as it was typed.
arrives() {  # GOAL NAME PREFIX VALUE...
  for value in "${@:4}"; do
    case $value in *$'\n'*) if run_make "$1" "$2=$value"; then fail "$2 with two lines is taken"; fi ;; *)
      run_make "$1" "$2=$3$value" || true
      grep -qxF -e "<$3$value>" "$words" || fail "make $1 $2=$3$value gives $(cat "$words" "$scratch/said")" ;;
    esac
    nothing_ran "$2=$3$value"
  done
}
arrives fit BUDGET '' "${values[@]}"
arrives chen BUDGET '' "${values[@]:0:3}"
arrives bench-peers PROCESSOR '' "${values[@]:3:3}"
arrives run-board PROGRAM "$scratch/" "${values[@]:4:3}"
recipe="$scratch/it's \"my\" \$(touch ran) \`touch ran\` net;.json"
cp "$scratch/net.json" "$recipe"
run_make fit RECIPE="$recipe" || fail "a recipe of any name: $(cat "$scratch/said")"
grep -qxF -e "<$recipe>" "$words" || fail "a recipe of any name arrives as $(cat "$words")"
[ ! -e ran ] || { rm ran; fail "a recipe's name is run"; }

# 3. Valid values are accepted.
run_make run-board STACK=16K BOARD=mps2-an500 || fail "run-board: $(cat "$scratch/said")"
grep -qxF -e '<-Wl,--defsym=stack_bytes=16K>' "$words" || fail "STACK=16K arrives as $(cat "$words")"
run_make bench-peers PARTS='resnet20 page' ROUNDS=2 BUSY=1 || fail "bench-peers: $(cat "$scratch/said")"
grep -qxF -e '<page>' "$words" && grep -qxF -e '<2>' "$words" || fail "PARTS and ROUNDS arrive as $(cat "$words")"
prefix="/opt/a&b|c \$x"
run_make install DESTDIR="$scratch/it's there" PREFIX="$prefix" || fail "install: $(cat "$scratch/said")"
grep -qxF "prefix=$prefix" "$scratch/it's there$prefix/lib/pkgconfig/reprise.pc" || fail "PREFIX in reprise.pc: $(cat "$scratch/it's there$prefix/lib/pkgconfig/reprise.pc")"
echo "make takes variables as texts"
