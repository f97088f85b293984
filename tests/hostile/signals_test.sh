#!/usr/bin/env bash
# What SIGINT, SIGTERM and SIGHUP do, in every phase: a line at once, the last snapshot whole, nothing half-written, and which exit status.
set -eu
build=$(cd "${BUILD:-build}" && pwd)
scratch=$(mktemp -d)
running=
clean() { [ -z "$running" ] || kill -9 $running 2>/dev/null || true; rm -rf "$scratch"; }
trap clean EXIT
cd "$scratch"
export XDG_CACHE_HOME=$scratch/cache
fail() { echo "failed: $*; it said: $(cat said 2>/dev/null)"; exit 1; }

# Waits until file $1 holds the words $2, at most $3 seconds.
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

# A step of many small rows, which takes seconds.
recipe() { # steps' micro-batches
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

  # The first one: said at once, though the step goes on; the snapshot is written when it is over.
  rm -rf s
  begin "$build/reprise" train quick/plan.bin --save s --log log --quiet
  await log '"step": 3,'
  kill -$signal $running
  await said '^stopping after this step.*; again: stop now$' 2
  expect_status 0
  [ -s s/training.json ] && [ ! -e s.saving ] || fail "no whole snapshot"
  cp -r s before

  # The second one ends the step at its next row; the snapshot stays as it was.
  begin "$build/reprise" train slow/plan.bin --save s --resume s --quiet
  sleep 0.7  # the step has begun
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

# A hang-up counts once, however often a terminal sends it.
begin "$build/reprise" train slow/plan.bin --quiet
sleep 0.7
for _ in 1 2 3; do kill -HUP $running; sleep 0.15; done
await said '^stopping after this step' 2
kill -0 $running 2>/dev/null || fail "the second SIGHUP has ended it"
for _ in 1 2; do sleep 0.2; kill -TERM $running 2>/dev/null || true; done
expect_status 129

# While a plan is made: one line, and nothing is left.
sed 's/\[1, 1, 1\]/[200, 200, 200]/; s/"batch"/"schedule": {"strategy": "optimal"}, "budget": "40MiB", "batch"/' quick.json >long.json
begin "$build/reprise" plan long.json -o made
sleep 0.7
kill -TERM $running
expect_status 143
[ "$(grep -vc ', [0-9]* s$' said)" = 1 ] || fail "not one line"
expect_line '^stopped by a signal; nothing half-written is left$'
[ ! -e made ] || expect_only made ''

# While the compiler runs, which is ended too.
cat >compiler <<'EOF'
#!/usr/bin/env bash
while [ "$1" != -o ]; do shift; done
echo $$ >"$PIDS"; echo half >"$2"
sleep 100 & wait
EOF
chmod +x compiler
begin env PIDS="$scratch/pids" CXX="$scratch/compiler" "$build/reprise" train quick.json --steps 1
await pids '[0-9]'
kill -TERM $running
expect_status 143
! kill -0 "$(cat pids)" 2>/dev/null || fail "the compiler goes on"
[ -z "$(find cache -name 'train.new*' -o -name '*.new-*')" ] || fail "left: $(find cache)"
