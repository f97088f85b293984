#!/bin/sh
# Tests ports/mpi with Open MPI and MPICH: data that ranks send arrive. If one rank is killed,
# exits, hangs or sends another size, all ranks end within seconds and stderr states why. Reason: a
# process that waits for ever, or an mpirun that succeeds although a rank has failed, would not be
# noticed. BUILD names the output folder, CXX the compiler; a missing MPI is reported and left out.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
compiler=${CXX:-g++}
scratch=$(cd "$(mktemp -d)" && pwd -P)
sanitizers=
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then sanitizers='-fsanitize=address,undefined -fno-sanitize-recover=all'; fi
# The settings of `make run`; memory that MPI itself leaks is not reported.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
  OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0

# ranks_in FOLDER: prints the ids of its ranks that still run the tested program. A zombie runs
# none.
ranks_in() { for file in "$1"/*.pid; do pid=$(basename "$file" .pid); case $(readlink "/proc/$pid/exe") in "$scratch"/*) echo "$pid" ;; esac; done 2>/dev/null; }
clean() {
  for folder in "$scratch"/*/*/; do for pid in $(ranks_in "$folder"); do kill -9 "$pid" 2>/dev/null || true; done; done
  rm -rf "$scratch"
}
trap clean EXIT
fail() { echo "mpi: $1" >&2; exit 1; }
milliseconds() { date +%s%3N; }
# Prints how many times longer a program may take than on an idle machine: 1 + load / processors.
busy_factor() { awk -v processors="$(nproc)" '{ print int(($1 + processors) / processors) }' /proc/loadavg; }

# Prints the output of mpirun and of each rank: an mpirun that ends because of one rank loses the
# last output of the others.
words() { cat "$folder/words" "$folder"/*.said 2>/dev/null || true; }

# start FOLDER RANKS ARGUMENT...: mpirun's output goes to FOLDER/words, and its status is returned.
# Several run at once. Each has a TMPDIR of its own, because runs of one user would share a folder
# there, and the first to end removes it.
start() {
  folder=$1 ranks=$2
  shift 2
  mkdir -p "$folder/tmp" && env TMPDIR="$folder/tmp" timeout -k 5 300 "$mpirun" -np "$ranks" "$program" "$@" "$folder" >"$folder/words" 2>&1
}

# fault SCENARIO RANKS WHO WORDS: rank WHO misbehaves; mpirun must fail, stderr must contain WORDS,
# and after (3 + 2 * `seconds`) s no rank may be left, multiplied by busy_factor. `seconds` is the
# ranks' timeout, 1 by default.
fault() {
  folder=$scratch/$mpi/$1-$2-$3 most=$(((3000 + ${seconds:=1} * 2000) * $(busy_factor)))
  ! start "$folder" "$2" "$1" "$2" "$seconds" "$3" || fail "$mpi, $1: mpirun ends with status 0"
  [ -e "$folder/fault" ] || fail "$mpi, $1: the ranks do not come so far: $(words)"
  began=$(stat -c %.3Y "$folder/fault" | tr -d .)
  while [ -n "$(ranks_in "$folder")" ] && [ $(($(milliseconds) - began)) -lt $most ]; do sleep 0.02; done
  lasted=$(($(milliseconds) - began))
  [ -z "$(ranks_in "$folder")" ] && [ $lasted -lt $most ] || fail "$mpi, $1: after $lasted ms ranks are left: $(ranks_in "$folder" | xargs)"
  words | grep -qE "$4" || fail "$mpi, $1: \"$4\" is missing in: $(words)"
  echo "$1 $lasted" >>"$scratch/$mpi/all-gone"
}

# Stops all ranks for longer than their timeout, as a job queue does, and continues them. They
# exchange data until FOLDER/resumed exists.
pause_all() {
  folder=$scratch/$mpi/paused
  start "$folder" 2 paused 2 2 0 &
  mpirun_pid=$!
  while [ "$(ranks_in "$folder" | wc -l)" -lt 2 ]; do
    kill -0 $mpirun_pid 2>/dev/null || fail "$mpi: ranks end before they are stopped: $(words)"
    sleep 0.02
  done
  for how in STOP CONT; do
    for pid in $(ranks_in "$folder"); do kill -$how "$pid" || fail "$mpi: a rank has ended too early: $(words)"; done
    [ $how = CONT ] || sleep 2.3
  done
  : >"$folder/resumed"
  wait $mpirun_pid || fail "$mpi: ranks that were stopped for a while do not go on: $(words)"
}

# refused RANKS PROCESSES WORDS: a plan for RANKS must be refused in PROCESSES processes; 0: without
# mpirun.
refused() {
  folder=$scratch/$mpi/refused-$1-$2
  if [ "$2" = 0 ]; then
    mkdir "$folder" && status=0
    "$program" none "$1" 1 0 "$folder" >"$folder/words" 2>&1 || status=$?
    [ $status = 3 ] || fail "$mpi: $1 ranks without mpirun: status $status: $(words)"
  else
    ! start "$folder" "$2" none "$1" 1 0 || fail "$mpi: $1 ranks in $2 processes run"
  fi
  words | grep -qE "^code 3: .*$3.* \($1\)\$" || fail "$mpi: \"$3\" is missing in: $(words)"
}

test_one() {  # MPI WORDS-OF-A-KILL
  mpi=$1 mpirun=mpirun.$1 program=$scratch/$1/check missing='code 9: a rank has not come within the time that it has'
  flags="-std=c++20 -O2 -I. -Wall -Wextra -Wconversion $sanitizers"
  wrapper() { OMPI_CXX=$compiler MPICH_CXX=$compiler "mpicxx.$mpi" "$@" || fail "ports/mpi does not compile for $mpi"; }
  mkdir "$scratch/$1"
  for source in ports/mpi/mpi_peers ports/mpi/mpi_port; do wrapper $flags -fno-exceptions -fno-rtti -c $source.cpp -o "$scratch/$1/$(basename $source).o"; done
  wrapper $flags tests/ports/ranks/mpi/peers_check.cpp "$scratch/$1"/*.o "$build/libreprise.a" -o "$program" \
    -lpthread -ldl

  for ranks in 2 3 4; do
    start "$scratch/$1/exchange-$ranks" $ranks exchange $ranks 20 $((ranks - 1)) || fail "$1, $ranks ranks: $(words)"
  done
  mkdir "$scratch/$1/alone"
  "$program" none 1 1 1 "$scratch/$1/alone" || fail "$1: a rank alone does not run without mpirun"
  refused 2 0 'start it by mpirun -np N'
  refused 2 3 'another number of processes than mpirun has started'
  refused 1 2 'another number of processes than mpirun has started'
  (
    fault stopped 3 1 "^rank [02]: $missing.*\(rank 1\)"
    seconds=2 fault hangs 3 1 "^rank 2: $missing.*\(rank 1\)"
  ) & slow=$!
  fault killed 2 1 "$2"
  fault exits 4 3 '^rank 3: the process ends without closing its peers'
  fault ends 2 1 '^rank 1: the process ends without closing its peers'
  fault leaves 2 1 '^rank [01]: .*(a rank has not come|all ranks wait, and nothing comes|MPI has failed)'
  fault shorter 2 1 '^rank 1: code 9: MPI has failed: .*\(rank unknown\)'
  pause_all
  wait $slow || exit 1
  echo "$1: all ranks are gone so many ms after one has begun to misbehave: $(xargs <"$scratch/$1/all-gone")"
}

found=
for mpi in openmpi mpich; do
  if tools/has_mpi.sh mpicxx.$mpi && command -v mpirun.$mpi >/dev/null 2>&1; then
    found="$found $mpi"
  else
    echo "skipped: no mpicxx.$mpi with its mpi.h and mpirun.$mpi here (packages libopenmpi-dev openmpi-bin, libmpich-dev mpich)"
  fi
done
# Both run in parallel, because waiting ranks use no processor.
waiting=
for mpi in $found; do
  case $mpi in openmpi) words='signal 9' ;; *) words='EXIT CODE: 9|signal 9' ;; esac
  (trap - EXIT; test_one $mpi "$words") & waiting="$waiting $!"
done
failed=0
for test in $waiting; do wait "$test" || failed=1; done
exit $failed
