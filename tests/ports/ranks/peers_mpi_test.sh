#!/bin/sh
# Tests the program that measures the network between ranks, started by mpirun. It prints one line
# that `reprise profile --peers` reads, and an error if it is started as one process. Figures of one
# machine's memory do not describe a network: this test requires only that they are there and grow
# with the bytes. BUILD names the output folder, CXX the compiler.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
tools/has_mpi.sh && command -v mpirun >/dev/null 2>&1 || { echo 'skipped: no mpicxx with its mpi.h and mpirun here (packages libopenmpi-dev openmpi-bin)'; exit 0; }
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo 'skipped: the sanitizers and MPI'; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "peers_mpi: $1" >&2; exit 1; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

flock "$build" make -s BUILD="$build" "$build/peers_mpi" >"$scratch/words" 2>&1 || fail "does not compile: $(cat "$scratch/words")"
for ranks in 2 3; do
  timeout -k 5 300 mpirun -np $ranks "$build/peers_mpi" >"$scratch/line" 2>"$scratch/words" || fail "$ranks ranks: $(cat "$scratch/words")"
  python3 - "$scratch/line" $ranks <<'END' || fail "$ranks ranks print $(cat "$scratch/line")"
import json, sys
text = open(sys.argv[1]).read()
line, ranks = json.loads(text), int(sys.argv[2])
assert text.count("\n") == 1 and set(line) == {"ranks", "broadcasts", "shares"} and line["ranks"] == ranks
for points in (line["broadcasts"], line["shares"]):
    assert [point["bytes"] for point in points] == [64, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20]
    assert all(point["seconds"] > 0 for point in points) and points[-1]["seconds"] > min(point["seconds"] for point in points[:4])
END
done
! timeout 60 "$build/peers_mpi" >"$scratch/line" 2>"$scratch/words" || fail 'one rank measures'
[ ! -s "$scratch/line" ] && [ "$(wc -l <"$scratch/words")" = 1 ] && grep -q 'mpirun -np N' "$scratch/words" || fail "one rank: $(cat "$scratch/line" "$scratch/words")"

cat >"$scratch/net.json" <<'END'
{"name": "net", "model": {"family": "resnet", "units": [1, 1, 1], "width": 4, "classes": 4, "image": [8, 8, 3]}, "data": {"kind": "synthetic"},
 "batch": 4, "steps": 2, "parallel": {"ranks": 2}, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
END
timeout 300 "$build/reprise" profile "$scratch/net.json" -o "$scratch/profile.json" --threads 1 --peers "mpirun -np 2 $build/peers_mpi" 2>"$scratch/words" \
  || fail "profile: $(cat "$scratch/words")"
"$build/reprise" compare "$scratch/net.json" --ranks 1,2,4 --profile "$scratch/profile.json" 2>"$scratch/words" || fail "compare: $(cat "$scratch/words")"
! "$build/reprise" profile "$scratch/net.json" -o "$scratch/none.json" --peers "$build/peers_mpi" 2>"$scratch/words" || fail 'one rank is profiled'
grep -q 'ended with status 1' "$scratch/words" && [ ! -e "$scratch/none.json" ] || fail "profile of one rank: $(cat "$scratch/words")"
