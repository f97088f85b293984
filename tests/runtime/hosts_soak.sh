#!/bin/sh
# Trains with four ranks on four hosts whose network is slow, loses packets and breaks. With 1
# Gbit/s, 1 ms and 0.1 to 1% of loss the bits must be those of one process, also if a host is away
# for 2.5 s. If it does not come back, all ranks must end a few seconds after the recipe's timeout,
# and a line must name a rank or the network. The last snapshot must then go on in two ranks, and in
# one, with the same bits. Reason: ranks on one machine (ranks_program_test.sh) use no network.
# `make soak` runs SOAK rounds with each MPI in turn. The random numbers of a round follow from its
# number: ROUND=7 runs only the seventh. Without the right to make hosts the test is skipped. BUILD
# names the output folder, CXX the compiler.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
timeout=8 steps=8
fail() { echo "hosts: $1" >&2; exit 1; }

# ---- outside: compiles the programs, because hosts reach no package mirror -------------------------------------------------------------------------------

# program NAME RANKS MPI: compiles a net whose embeddings are larger than MPI's messages, so that
# they are sent as broadcasts, and whose gradients are much smaller.
program() {
  name=hosts-soak-$1
  echo "{\"name\": \"$name\", \"model\": {\"family\": \"gpt2\", \"vocab_size\": 5000, \"n_positions\": 32, \"n_embd\": 256, \"n_layer\": 2, \"n_head\": 4},
    \"data\": {\"kind\": \"synthetic\"}, \"batch\": 1, \"clip_norm\": 1.0, \"optimizer\": {\"name\": \"adamw\", \"lr\": 0.001}, \"steps\": $steps,
    \"accumulate\": $((4 / $2)), \"parallel\": {\"ranks\": $2, \"timeout\": $timeout}}" >"$scratch/$1.json"
  make -s build BUILD="$build" RECIPE="$scratch/$1.json" MPICXX="mpicxx.$3" >"$scratch/words" 2>&1 || fail "$1 does not compile: $(cat "$scratch/words")"
  mv "$build/$name/train" "$scratch/bin/$1" && rm -r "${build:?}/$name"
}

if [ "${1:-}" != --inside ]; then
  if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo 'skipped: the sanitizers and MPI'; exit 0; fi
  tests/ports/ranks/mpi/with_hosts.sh 1 test -c /dev/net/tun || {
    [ $? = 77 ] || echo 'skipped: no /dev/net/tun, from which hosts have their network'
    exit 0
  }
  scratch=$(cd "$(mktemp -d)" && pwd -P)
  hosts=
  clean() { [ -z "$hosts" ] || kill -9 $hosts 2>/dev/null || true; rm -rf "$scratch"; }
  trap clean EXIT
  trap 'exit 1' HUP INT TERM
  mkdir "$scratch/bin"
  found=
  for mpi in mpich openmpi; do  # the one that others compile with comes last, so that they find its library
    if tools/has_mpi.sh mpicxx.$mpi && command -v mpirun.$mpi >/dev/null 2>&1; then
      for ranks in 2 4; do program $mpi-$ranks $ranks $mpi; done
      found="$mpi $found"
    else
      echo "skipped: no mpicxx.$mpi with its mpi.h and mpirun.$mpi here (packages libopenmpi-dev openmpi-bin, libmpich-dev mpich)"
    fi
  done
  [ -n "$found" ] || exit 0
  program one 1 "${found%% *}"
  ${CXX:-g++} -std=c++20 -O2 -Wall -Wextra -Wconversion tests/ports/ranks/mpi/hosts_switch.cpp -o "$scratch/switch"
  cp tests/ports/ranks/mpi/host_shell.sh "$scratch/shell"
  tests/ports/ranks/mpi/with_hosts.sh 4 "$0" --inside "$scratch" $found & hosts=$!
  wait $hosts || exit 1
  hosts=
  exit 0
fi

# ---- inside ----------------------------------------------------------------------------------------------------------------------------------------------

scratch=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export UCX_TLS=tcp,self  # else MPICH's ranks on this machine share memory
export TMPDIR="$scratch"

milliseconds() { date +%s%3N; }
# number NAME LIMIT: prints a pseudo-random number below LIMIT that depends on the round and the
# name only.
number() { echo $(($(echo "$round $1" | cksum | cut -d ' ' -f 1) % $2)); }
seconds() { awk "BEGIN { print $1 / 1000 }"; }
words() { cat "$scratch/words"; }
fail() { echo "hosts: round $round, $mpi: $1" >&2; exit 1; }

# Starts a new network with uncut cables and without processes.
start_network() {
  for n in 1 2 3 4; do ip netns pids host$n | xargs -r kill -9 2>/dev/null || true; done
  if [ -n "${switch:-}" ]; then kill "$switch" 2>/dev/null || true; wait "$switch" 2>/dev/null || true; fi
  rm -f "$scratch/commands" && mkfifo "$scratch/commands"
  exec 3<>"$scratch/commands"
  "$scratch/switch" 4 "$round" <"$scratch/commands" & switch=$!
  for n in 1 2 3 4; do
    until ip -n host$n link show eth0 >/dev/null 2>&1; do kill -0 $switch || fail 'there is no network'; sleep 0.02; done
    ip -n host$n link set eth0 address 02:00:00:00:00:0$n up && ip -n host$n addr add 10.9.0.$n/24 dev eth0
  done
  tell "loss $loss"
}
tell() { echo "$1" >&3; }

# launch RANKS PROGRAM ARGUMENTS...: starts rank 0 and mpirun on host 1, rank 1 on host 2 and so on;
# one rank without MPI.
launch() {
  ranks=$1 program=$scratch/bin/$2
  shift 2
  addresses=$(seq -s , -f 10.9.0.%g "$ranks")
  case $ranks$mpi in
    1*) set -- "$program" "$@" ;;
    *openmpi) set -- mpirun.openmpi -np "$ranks" -H "$addresses" --mca plm_rsh_agent "$scratch/shell" --mca btl self,tcp --mca btl_tcp_if_include 10.9.0.0/24 \
        --mca oob_tcp_if_include 10.9.0.0/24 "$program" "$@" ;;
    *mpich) set -- mpirun.mpich -np "$ranks" -hosts "$addresses" -launcher rsh -launcher-exec "$scratch/shell" -iface eth0 "$program" "$@" ;;
  esac
  ip netns exec host1 timeout -k 5 120 "$@" --threads 1 --no-tune --quiet >"$scratch/words" 2>&1
}
ranks_left() { pgrep -f "^$scratch/bin/" || true; }
# await FILE: waits until the run that was just started has written it.
await() { while [ ! -s "$1" ]; do kill -0 $run 2>/dev/null || fail "a run ends before it has written $1: $(words)"; sleep 0.02; done; }
same() {
  for file in model.safetensors optimizer.safetensors; do cmp -s "$scratch/$1/$file" "$scratch/$2/$file" || fail "$file of $1 and $2 differ"; done
}

lossy() {
  began=$(milliseconds)
  launch 4 $mpi-4 --save "$scratch/lossy" || fail "with a loss of $loss: $(words)"
  lasted=$(($(milliseconds) - began))
  same one lossy
  echo "round $round, $mpi: $steps steps with a loss of $loss took $(seconds $lasted) s: the same bits"
}

# Disconnects a host for 0.5 to 2.5 s during a step. The training must end with the bits of one
# process.
away() {
  who=$(($(number away 4) + 1)) lasts=$((500 + $(number lasts 2001)))
  launch 4 $mpi-4 --save "$scratch/away" --log "$scratch/away.log" & run=$!
  await "$scratch/away.log"
  sleep "$(seconds "$(number moment 1000)")"
  tell "cut $who" && sleep "$(seconds $lasts)" && tell "mend $who"
  [ "$(wc -l <"$scratch/away.log")" -lt $steps ] || fail "the training is over before host $who is back"
  wait $run || fail "host $who was away for $lasts ms, and the training ends: $(words)"
  same one away
  echo "round $round, $mpi: host $who was away for $(seconds $lasts) s: the same bits"
}

# Disconnects a host for good. All ranks must end, and two ranks, then one, must go on from the last
# snapshot. mpirun may wait for its daemon on this host as long as TCP does, a quarter of an hour;
# start_network ends mpirun.
gone() {
  who=$(($(number gone 4) + 1))
  launch 4 $mpi-4 --save "$scratch/gone" --save-every 1 --steps 100000 2>/dev/null & run=$!
  await "$scratch/gone/training.json"
  sleep "$(seconds "$(number late 1000)")"
  tell "cut $who" && began=$(milliseconds)
  while [ -n "$(ranks_left)" ] && [ $(($(milliseconds) - began)) -lt $((1000 * timeout + 8000)) ]; do sleep 0.05; done
  lasted=$(($(milliseconds) - began))
  [ -z "$(ranks_left)" ] || fail "host $who is away, and $lasted ms later ranks are left: $(ranks_left | xargs); $(words)"
  said=$(grep -m 1 -oE 'a rank has not come.*\(rank [0-9]\)|all ranks wait, and nothing comes: the network.*|MPI has failed: .*' "$scratch/words") || fail "host $who is away, and nobody says so: $(words)"
  start_network
  ! wait $run 2>/dev/null || fail "host $who is away, and mpirun ends well"
  step=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$scratch/gone/training.json" | head -n 1)
  launch 2 $mpi-2 --continue --save "$scratch/gone" --steps $((step + 2)) || fail "two ranks do not go on after step $step: $(words)"
  launch 1 one --continue --save "$scratch/gone" --steps $((step + 4)) || fail "one process does not go on: $(words)"
  launch 1 one --save "$scratch/whole" --steps $((step + 4)) || fail "one process does not train: $(words)"
  same whole gone
  echo "round $round, $mpi: host $who was cut off after step $step: all ranks were gone $(seconds $lasted) s later ($said); the same bits in two ranks and in one"
}

first=1 last=${SOAK:-1}
if [ -n "${ROUND:-}" ]; then first=$ROUND last=$ROUND; fi
mpi=none round=$first
launch 1 one --save "$scratch/one" || fail "one process does not train: $(words)"
for round in $(seq "$first" "$last"); do
  mpi=$(echo "$@" | cut -d ' ' -f $(((round - 1) % $# + 1)))
  loss=$(awk "BEGIN { print 0.001 * 10 ^ ($(number loss 1001) / 1000) }")
  start_network
  lossy
  away
  gone
  rm -rf "$scratch/lossy" "$scratch/away" "$scratch/away.log" "$scratch/gone" "$scratch/whole"
done
