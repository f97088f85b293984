#!/bin/sh
# Tests programs of several ranks, which mpirun starts. Their bits must be those of one process,
# also in snapshots, which another number of ranks can resume. If a rank is killed, all ranks must
# end, and the last snapshot must stay complete. A rank that would train something else must be
# refused. Reason: tests with threads as ranks (ranks_test.cpp) involve neither mpirun nor files.
# BUILD names the output folder, CXX the compiler.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
tools/has_mpi.sh && command -v mpirun >/dev/null 2>&1 || { echo 'skipped: no mpicxx with its mpi.h and mpirun here (packages libopenmpi-dev openmpi-bin)'; exit 0; }
if nm "$build/libreprise.a" 2>/dev/null | grep -q __asan_; then echo 'skipped: the sanitizers and MPI'; exit 0; fi
scratch=$(cd "$(mktemp -d)" && pwd -P)
clean() { pkill -9 -f "$scratch" 2>/dev/null || true; rm -rf "$scratch"; }
trap clean EXIT
fail() { echo "ranks: $1" >&2; exit 1; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

resnet='"model": {"family": "resnet", "units": [1, 1, 1], "width": 4, "classes": 4, "image": [8, 8, 3]}, "data": {"kind": "synthetic"}, "batch": 4, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}'
gpt='"model": {"family": "gpt2", "vocab_size": 40, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}, "data": {"kind": "synthetic"}, "batch": 2, "dtype": "bf16", "clip_norm": 1.0, "optimizer": {"name": "adamw", "lr": 0.01}'

llama='"model": {"family": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}, "init": "random", "data": {"kind": "synthetic"}, "batch": 2, "sequence": 12, "lora": {"r": 2}, "weights": {"stream": true}, "optimizer": {"name": "adamw", "lr": 0.01}, "evaluate_every": 2'

# Several tests that make in one build folder would write the same objects: a lock serialises them.
flock "$build" make -s BUILD="$build" "$build/libreprise-mpi.a" >"$scratch/words" 2>&1 || fail "ports/mpi does not compile: $(cat "$scratch/words")"

# program NAME NET RANKS ACCUMULATE [PARALLEL]: plans and compiles the net as bin/NAME. A plan for
# one process also has "parallel", without which a net with trained embeddings would have other
# bits.
program() {
  name=ranks-test-$1
  echo "{\"name\": \"$name\", $2, \"accumulate\": $4, \"parallel\": {\"ranks\": $3, \"timeout\": 20${5:-}}, \"steps\": 6}" >"$scratch/$1.json"
  make -s build BUILD="$build" RECIPE="$scratch/$1.json" >"$scratch/words" 2>&1 || fail "$1 does not compile: $(cat "$scratch/words")"
  mkdir -p "$scratch/bin" && mv "$build/$name/train" "$scratch/bin/$1" && rm -r "${build:?}/$name"
}
# train RANKS NAME ARGUMENTS...: runs bin/NAME in RANKS ranks, with mpirun if there are several.
train() {
  ranks=$1 name=$2
  shift 2
  if [ "$ranks" = 1 ]; then set -- "$scratch/bin/$name" "$@"; else set -- mpirun -np "$ranks" "$scratch/bin/$name" "$@"; fi
  timeout -k 5 300 "$@" --threads 1 --no-tune --quiet >"$scratch/words" 2>&1
}
trained() { train "$@" || fail "$2 in $1 ranks: $(cat "$scratch/words")"; }
same() {
  for file in model.safetensors optimizer.safetensors; do cmp -s "$scratch/$1/$file" "$scratch/$2/$file" || fail "$file of $1 and $2 differ"; done
}

for net in resnet gpt; do
  eval "fields=\$$net"
  program $net-1 "$fields" 1 4
  program $net-2 "$fields" 2 2
  program $net-4 "$fields" 4 1
  for ranks in 1 2 4; do trained $ranks $net-$ranks --save "$scratch/$net-of-$ranks" --log "$scratch/$net-of-$ranks.log"; done
  same $net-of-1 $net-of-2
  same $net-of-1 $net-of-4
  sed 's/"seconds.*//' "$scratch/$net-of-1.log" >"$scratch/one"
  for ranks in 2 4; do sed 's/"seconds.*//' "$scratch/$net-of-$ranks.log" | cmp -s "$scratch/one" - || fail "$net: another log in $ranks ranks"; done
done

# Every rank must have allocated exactly the bytes of its plan.
timeout -k 5 300 mpirun -np 4 "$scratch/bin/gpt-4" --threads 1 --no-tune >"$scratch/words" 2>&1 || fail "gpt-4 in 4 ranks: $(cat "$scratch/words")"
[ "$(grep -cE '^memory(: | of rank [1-3]: )planned .*\(equal\)' "$scratch/words")" = 4 ] || fail "not as many bytes as planned: $(cat "$scratch/words")"

# Trains two steps in four ranks, the next two in two ranks, and the last two in one process. The
# result must be that of one process.
trained 4 gpt-4 --save "$scratch/handed-on" --steps 2
trained 2 gpt-2 --save "$scratch/handed-on" --resume "$scratch/handed-on" --steps 4
trained 1 gpt-1 --save "$scratch/handed-on" --resume "$scratch/handed-on"
same gpt-of-1 handed-on

# Optimizer moments are sharded over ranks. A run with another number of ranks must resume with the
# moments of all ranks.
program gpt-kept "$gpt" 4 1 ', "shard_optimizer": true'
trained 4 gpt-kept --save "$scratch/kept" --steps 2 --save-every 1
trained 2 gpt-2 --save "$scratch/kept" --resume "$scratch/kept" --steps 4
trained 4 gpt-kept --save "$scratch/kept" --resume "$scratch/kept"
same gpt-of-1 kept

# Streamed weights are sharded over ranks. All processes need the same file, which the first process
# writes.
program llama-1 "$llama" 1 4
program llama-2 "$llama" 2 2 ', "shard_weights": true'
for ranks in 1 2; do trained $ranks llama-$ranks --save "$scratch/llama-of-$ranks" --streamed "$scratch/streamed-$ranks"; done
same llama-of-1 llama-of-2
for ranks in 1 2; do "$scratch/bin/llama-$ranks" --evaluate --resume "$scratch/llama-of-2" --streamed "$scratch/streamed-$ranks" --no-tune --json >"$scratch/evaluated-$ranks" 2>"$scratch/words" || fail "llama-$ranks evaluates nothing alone: $(cat "$scratch/words")"; done
cmp -s "$scratch/evaluated-1" "$scratch/evaluated-2" || fail "alone, another evaluation: $(cat "$scratch/evaluated-1" "$scratch/evaluated-2")"

# In the two-level order the bits depend on the number of ranks. A run of two ranks and a resumed
# run of two ranks must have equal bits. One process that resumes from this snapshot must report
# that its bits will differ.
program gpt-levels "$gpt" 2 2 ', "order": "two-level"'
trained 2 gpt-levels --save "$scratch/levels"
trained 2 gpt-levels --save "$scratch/levels-again" --steps 2
trained 2 gpt-levels --save "$scratch/levels-again" --resume "$scratch/levels-again"
same levels levels-again
train 1 gpt-1 --save "$scratch/levels-again" --resume "$scratch/levels-again" --steps 7
grep -q 'saved from a recipe with another "parallel"' "$scratch/words" || fail "two levels: $(cat "$scratch/words")"

# Refused: ranks with different recipes or data, and a number of processes that is not that of the
# plan.
program other "$(echo "$resnet" | sed 's/0.05/0.06/')" 2 2
! timeout -k 5 300 mpirun -np 1 "$scratch/bin/resnet-2" --quiet : -np 1 "$scratch/bin/other" --quiet >"$scratch/words" 2>&1 || fail 'ranks with two recipes train'
grep -q 'rank 1 differs from rank 0: recipe' "$scratch/words" || fail "two recipes: $(cat "$scratch/words")"
for file in a b; do
  { seq 2000; echo $file; } >"$scratch/$file.txt"
  program text-$file "\"model\": {\"family\": \"gpt2\", \"vocab_size\": 256, \"n_positions\": 16, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2}, \"batch\": 2, \"data\": {\"kind\": \"text\", \"path\": \"$scratch/$file.txt\"}" 2 1
done
! timeout -k 5 300 mpirun -np 1 "$scratch/bin/text-a" --quiet : -np 1 "$scratch/bin/text-b" --quiet >"$scratch/words" 2>&1 || fail 'ranks with two texts train'
grep -q 'rank 1 differs from rank 0: data' "$scratch/words" || fail "two texts: $(cat "$scratch/words")"
! train 3 resnet-2 || fail 'three processes of a plan for two train'
grep -q 'mpirun -np N' "$scratch/words" || fail "three processes: $(cat "$scratch/words")"
! "$scratch/bin/resnet-2" --quiet >"$scratch/words" 2>&1 || fail 'a plan for two trains alone'
grep -q 'mpirun -np N' "$scratch/words" || fail "alone: $(cat "$scratch/words")"

# A rank is killed at a random moment. All ranks must end, and a run that resumes from the last
# snapshot must have the same bits.
moments=${SOAK:-1}
for turn in $(seq $((3 * moments))); do
  rm -rf "$scratch/killed"
  timeout -k 5 300 mpirun -np 4 "$scratch/bin/resnet-4" --threads 1 --no-tune --quiet --steps 100000 --save "$scratch/killed" --save-every 1 >"$scratch/words" 2>&1 &
  mpirun=$!
  while [ ! -e "$scratch/killed/training.json" ]; do kill -0 $mpirun 2>/dev/null || fail "no snapshot before the kill: $(cat "$scratch/words")"; sleep 0.02; done
  sleep "0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')"
  victim=$(pgrep -f "^$scratch/bin/resnet-4" | shuf -n 1)
  kill -9 "$victim"
  ! wait $mpirun || fail "mpirun ends well, although a rank was killed"
  for _ in $(seq 300); do pgrep -f "^$scratch/bin/resnet-4" >/dev/null || break; sleep 0.1; done
  ! pgrep -f "^$scratch/bin/resnet-4" >/dev/null || fail 'ranks are left behind'
  step=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$scratch/killed/training.json" | head -n 1)
  trained 1 resnet-1 --continue --save "$scratch/killed" --steps $((step + 2))
  trained 1 resnet-1 --save "$scratch/whole" --steps $((step + 2))
  same whole killed
  rm -rf "$scratch/whole"
done
