#!/bin/sh
# Tests the Makefile: every target of `make help` is built here or by a test that is named below.
# Paths may contain spaces and quotes, the checkout's too, and a recipe may have the name of
# anything that the build makes. The test uses a copy of the checkout with the existing objects.
# BUILD and CXX as for make.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "make: $1" >&2; exit 1; }
sanitize=
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then sanitize='-fsanitize=address,undefined -fno-sanitize-recover=all'; fi
run_make() { env MAKEFLAGS= MAKELEVEL=0 make BUILD=build CXX="$compiler" SANITIZE="$sanitize" "$@" >"$scratch/words" 2>&1; }
make_well() { run_make "$@" || fail "make $* fails: $(cat "$scratch/words")"; }
says() { grep -qF -e "$1" "$scratch/words" || fail "$2 does not say \"$1\" but: $(cat "$scratch/words")"; }

# 1. TAKEN lists all names that the build makes in its folder: the targets of its rules, and the
# names that scripts use.
taken=" $(sed -n '/^TAKEN :=/,/[^\\]$/p' Makefile | sed -e 's/^TAKEN :=//' -e 's/\\$//' | tr -s '\n ' ' ') "
{
  env MAKEFLAGS= make -pnq BUILD=build RECIPE=/dev/null 2>/dev/null | sed -nE 's|^build/([^/:% ]+)[/:].*|\1|p'
  find tests -name '*.sh' -o -name '*.h' -o -name '*.cpp' -o -name '*.py' | sort | xargs cat Makefile \
    | sed -E 's%build_folder\(\) \+ "|"build/%$build/%g' \
    | grep -oE '\$(build|\{BUILD:-build\}|\(BUILD\))/+[A-Za-z0-9._-]+' | sed 's|.*/||'
} | sort -u >"$scratch/made"
[ "$(wc -l <"$scratch/made")" -ge 15 ] || fail "only $(wc -l <"$scratch/made") names were found below build/"
while read -r name; do case $taken in *" $name "*) ;; *) fail "TAKEN of the Makefile lacks $name" ;; esac; done <"$scratch/made"

# 2. Every target that `make help` lists is built: by this test, by a prerequisite of `make test`,
# or by the named script.
for target in $(env MAKEFLAGS= make -s help | sed -n 's/^  make \([a-z-]*\) .*/\1/p'); do
  built=
  case $target in
    all | run | build | plan | fit | audit | size | install | clean) ;;  # below
    test | help) ;;                                                     # this suite, and readme_test.sh
    bench | bench-plan | chen | chen-curves | traffic) built=$build/tests/bench/checked ;;
    fuzz) built=tests/fuzz/fuzz_test.sh ;;
    compilers) built=tests/ports/boards/compilers_test.sh ;;
    cuda) built=tests/ports/machine_code/cuda_machine_code_test.sh ;;
    cuda-models) built=tests/ports/cards/cuda_conv_test.cpp ;;
    soak) built=tests/interfaces/soak.h ;;  # the suite runs its tests
    asan) make_well -n asan ;;  # the whole suite once more: too long for every day
    gpu) built=$build/tests/bench/checked ;;  # the programs without CUDA's headers; the rest needs a card
    board | dist) built=tests/ports/boards/board_test.sh ;;
    bench-boards) built=tests/bench/boards/small_boards.py ;;  # its page shows this build's own plans
    run-board | adapt-board | bench-board-instructions) built=tests/ports/boards/cortex_m_test.sh ;;
    # These need nvcc, MPI, PyTorch or root.
    install-cuda | install-mpi | parity | bench-lm | bench-nets | bench-peers | bench-ranks) ;;
    *) fail "does not know how $target of make help is built: say it here" ;;
  esac
  [ -z "$built" ] || [ -e "$built" ] || fail "$built, which builds $target, is not there"
done

# 3. A checkout whose path has a space and a quote, with the existing objects.
checkout="$scratch/it's my checkout"
mkdir -p "$checkout/build"
cp -a Makefile lib ports tools cuda tests "$checkout"
# A lock, because other tests make in that folder.
for made in reprise libtools.a libreprise.a lib ports tools packages; do flock "$build" cp -a "$build/$made" "$checkout/build/$made"; done
[ ! -e "$build/modules" ] || cp -a "$build/modules" "$checkout/build/modules"
cd "$checkout"
make_well all
[ ! -s "$scratch/words" ] || [ "$(cat "$scratch/words")" = "make: Nothing to be done for 'all'." ] || fail "all builds again: $(cat "$scratch/words")"

# 4. A recipe whose path has spaces, quotes and other shell characters; a budget with a space.
mkdir "my dir"
recipe='my dir/it'\''s "my" net, $HOME; #1.json'
cat >"$recipe" <<'JSON'
{"model": {"family": "gpt2", "vocab_size": 31, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 2}, "batch": 2, "sequence": 16,
 "data": {"kind": "synthetic"}, "steps": 2, "optimizer": {"name": "sgd", "lr": 0.01}}
JSON
name=$(build/reprise name "$recipe")
make_well plan RECIPE="$recipe" BUDGET="64 MiB"
says "plan my dir/it's \"my\" net, \$HOME; #1.json" "make plan"
[ -s "build/$name/plan.h" ] || fail "$recipe has no build/$name/plan.h"
make_well fit RECIPE="$recipe" BUDGET="64 MiB"
make_well audit RECIPE="$recipe"
run_make fit RECIPE="$recipe" BUDGET="64 parsecs" && fail "64 parsecs are a budget" || says '"64 parsecs"' "make fit"
run_make plan RECIPE="my dir/none.json" && fail "a recipe that is not there is planned" || says "my dir/none.json" "make plan"
make_well build RECIPE="$recipe" BUDGET="64 MiB"
! grep -q '^  plan ' "$scratch/words" || fail "the same recipe and budget are planned again: $(cat "$scratch/words")"
touch "$recipe"
make_well run RECIPE="$recipe" BUDGET="64 MiB" ARGS='--log "my dir/log of steps.jsonl"'
! grep -qE '^  (plan|compile) ' "$scratch/words" || fail "a recipe that was touched is planned again: $(cat "$scratch/words")"
[ "$(grep -c '"loss"' "my dir/log of steps.jsonl")" = 2 ] || fail "make run logged: $(cat "my dir/log of steps.jsonl")"
sed -i 's/"steps": 2/"steps": 3/' "$recipe"
make_well plan RECIPE="$recipe" BUDGET="64 MiB"
says "  plan " "make plan of a recipe that was edited"
make_well plan RECIPE="$recipe" BUDGET="65 MiB"
says "  plan " "make plan with another budget"

# 5. Recipes with the names of files and folders of the build.
for name in lib reprise tests packages libtools.a recipes; do
  cp "$recipe" "my dir/$name.json"
  make_well plan RECIPE="my dir/$name.json"
  [ -s "build/recipes/$name/plan.h" ] || fail "a recipe named $name has no build/recipes/$name/plan.h"
done
make_well all
[ ! -e build/lib/plan.h ] || fail "a recipe named lib is planned into the build's own folder"

# 6. The rest of the targets that `make help` lists.
make_well size
says "of the library in all: " "make size"
make_well size AGAINST=build
says "nothing differs" "make size beside itself"
make_well install DESTDIR="$scratch/installed tree" PREFIX=/usr
installed="$scratch/installed tree/usr/bin/reprise"
[ -x "$installed" ] || fail "make install left no reprise"
make_well clean
[ ! -e build ] || fail "make clean left build/"

# 7. An installed program trains without the checkout: from another folder, with a cache of its own.
mv "$recipe" "$scratch/net.json"
mkdir "$scratch/elsewhere" "$scratch/cache of mine"
train_installed() { (cd "$scratch/elsewhere" && XDG_CACHE_HOME="$scratch/cache of mine" "$installed" train ../net.json "$@") >"$scratch/words" 2>&1; }
(cd "$scratch/elsewhere" && "$installed" fit ../net.json --board orin-nano-8gb) >"$scratch/words" 2>&1 || fail "a board is not known by name: $(cat "$scratch/words")"
train_installed --budget "64 MiB" --log log.jsonl || fail "reprise train fails: $(cat "$scratch/words")"
[ "$(grep -c '"loss"' "$scratch/elsewhere/log.jsonl")" = 3 ] || fail "reprise train logged: $(cat "$scratch/elsewhere/log.jsonl")"
train_installed --budget "64 MiB" --steps 1 --quiet || fail "reprise train fails the second time: $(cat "$scratch/words")"
[ ! -s "$scratch/words" ] || fail "reprise train is not quiet: $(cat "$scratch/words")"
train_installed --budget 1KiB && fail "a budget of 1KiB is trained in" || says "does not fit" "reprise train"
# Two at once, with different budgets: each runs its own plan.
rm -r "$scratch/cache of mine"
first=$scratch/first
(cd "$scratch/elsewhere" && XDG_CACHE_HOME="$scratch/cache of mine" "$installed" train ../net.json --budget "64 MiB" --steps 1) >"$first" 2>&1 &
train_installed --budget "65 MiB" --steps 1 || fail "the second of two reprise train fails: $(cat "$scratch/words")"
wait $! || fail "the first of two reprise train fails: $(cat "$first")"
grep -q '^  budget  *64\.0 MiB' "$first" || fail "the first of two reprise train has another's plan"
says "65.0 MiB" "the second of two reprise train"
echo "the Makefile keeps its word"
