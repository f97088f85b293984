#!/usr/bin/env bash
# Tests SIGINT, SIGTERM and SIGHUP during training and planning. The program must print a line at
# once, keep the last snapshot complete, leave no partial file, and exit with the right status.
set -eu
build=$(cd "${BUILD:-build}" && pwd)
scratch=$(mktemp -d)
running=
clean() { [ -z "$running" ] || kill -9 $running 2>/dev/null || true; rm -rf "$scratch"; }
trap clean EXIT
cd "$scratch"
export XDG_CACHE_HOME=$scratch/cache
fail() { echo "failed: $*; it said: $(cat said 2>/dev/null)"; exit 1; }

# await FILE PATTERN [SECONDS]: waits at most SECONDS (default: 30) until FILE contains PATTERN.
await() {
  for _ in $(seq $((${3:-30} * 50))); do
    grep -q -- "$2" "$1" 2>/dev/null && return
    sleep 0.02
  done
  fail "\"$2\" is not in $1 after ${3:-30} s"
}
begin() { "$@" >out 2>said & running=$!; }
expect_status() {
  local status=0
  wait $running || status=$?
  running=
  [ $status = "$1" ] || fail "status $status, not $1"
}
expect_line() { grep -q -- "$1" said || fail "no line \"$1\""; }
expect_only() { [ "$(ls -A "$1" | tr '\n' ' ')" = "$2" ] || fail "$1 holds $(ls -A "$1" | tr '\n' ' ')"; }

# Prints a recipe. With many micro-batches a step consists of many small rows and takes seconds.
recipe() { # $1: number of micro-batches in a step
  cat <<EOF
{"name": "slow", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 5,
 "image": [12, 12, 3]}, "data": {"kind": "synthetic"}, "batch": 16, "accumulate": $1, "steps": 100000, "optimizer": {"name": "sgd", "lr": 0.05}}
EOF
}
recipe 1 >quick.json
recipe 20000 >slow.json
"$build/reprise" plan quick.json -o quick --binary 2>said
"$build/reprise" plan slow.json -o slow --binary 2>said
train() { "$build/reprise" train "$@"; }

for signal in INT TERM; do
  number=$([ $signal = INT ] && echo 2 || echo 15)

  # The first signal is reported at once, while the step still runs. The snapshot is written after
  # the step.
  rm -rf s
  begin "$build/reprise" train quick/plan.bin --save s --log log --quiet
  await log '"step": 3,'
  kill -$signal $running
  await said '^stopping after this step.*; again: stop now$' 2
  expect_status 0
  [ -s s/training.json ] && [ ! -e s.saving ] || fail "no whole snapshot"
  cp -r s before

  # The second signal ends the step at its next row; the snapshot is unchanged.
  begin "$build/reprise" train slow/plan.bin --save s --resume s
  await said '^training slow'
  sleep 0.3  # the step has begun
  kill -$signal $running
  await said '^stopping after this step' 2
  sleep 0.2
  kill -$signal $running
  await said '^stopping at the next row' 2
  expect_status $((128 + number))
  expect_line 'stopped between two rows'
  diff -r s before >/dev/null || fail "the snapshot has changed"
  [ ! -e s.saving ] || fail "s.saving is left"
  rm -rf before log
done

# Several SIGHUPs count as one signal, because a closing terminal may send several. Under nohup the
# program must ignore SIGHUP, which is not tested here: the lowest bit of SigIgn is then set.
if grep -q '^SigIgn:.*[13579bdf]$' /proc/self/status; then
  echo "SIGHUP is ignored here (nohup): not tested"
else
  begin "$build/reprise" train slow/plan.bin
  await said '^training slow'
  sleep 0.3
  for _ in 1 2 3; do kill -HUP $running; sleep 0.15; done
  await said '^stopping after this step' 2
  kill -0 $running 2>/dev/null || fail "the second SIGHUP has ended it"
  for _ in 1 2; do sleep 0.2; kill -TERM $running 2>/dev/null || true; done
  expect_status 129
fi

# A signal while `reprise plan` plans: one line is printed, and no file remains.
sed 's/\[1, 1, 1\]/[200, 200, 200]/; s/"batch"/"schedule": {"strategy": "optimal"}, "budget": "40MiB", "batch"/' quick.json >long.json
begin "$build/reprise" plan long.json -o made
sleep 0.7
kill -TERM $running
expect_status 143
[ "$(grep -vc ', [0-9]* s$' said)" = 1 ] || fail "not one line"
expect_line '^stopped by a signal; nothing half-written is left$'
[ ! -e made ] || expect_only made ''

# A signal while `reprise train` plans: the child process that plans also ends. One line is printed.
begin "$build/reprise" train long.json --steps 1
sleep 0.7
planner=$(pgrep -P $running)
kill -TERM $running
expect_status 143
! kill -0 "$planner" 2>/dev/null || fail "the planner goes on"
[ "$(grep -vc ', [0-9]* s$' said)" = 1 ] || fail "not one line"
[ -z "$(find cache -name 'plan.bin*')" ] || fail "left: $(find cache)"
