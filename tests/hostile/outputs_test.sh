#!/bin/sh
# Tests that the program overwrites no file of the user. Each writer refuses a file that the program
# has not written, a link to an input, and an input itself. It leaves their bytes unchanged, and
# replaces its own files. A table lists the writers; tests of single writers follow.
set -eu
cd "$(dirname "$0")/../.."
root=$(pwd)
build=$(cd "${BUILD:-build}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="$scratch/cache"
cd "$scratch"
fail() { echo "outputs: $1" >&2; exit 1; }
reprise() { "$build/reprise" "$@" >words 2>&1; }
works() { reprise "$@" || fail "reprise $* fails: $(cat words)"; }
# refused STATUS WORD COMMAND...: requires that `reprise COMMAND...` exits with STATUS, and that its
# output matches the pattern WORD.
refused() {
  wanted=$1 word=$2; shift 2
  status=0; reprise "$@" || status=$?
  [ "$status" = "$wanted" ] || fail "reprise $* ends with $status, must end with $wanted: $(cat words)"
  grep -q -e "$word" words || fail "reprise $* does not say \"$word\" but: $(cat words)"
}

cat >r.json <<'END'
{"name": "rn", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 5, "image": [12, 12, 3]},
 "data": {"kind": "synthetic"}, "batch": 4, "steps": 3, "optimizer": {"name": "sgd", "lr": 0.05}}
END
cp "$root/tests/data/minimalloc/input.12.csv" p.csv
cp "$root/tests/golden/onnx/resnet.onnx" net.onnx
works plan r.json --binary -o plan
works chain r.json -o chain.in
train="train plan/plan.bin --threads 1 --no-tune --quiet"
works $train --save snap

# Prints the table of writers. A line is OUTPUT INPUT COMMAND: the file that is written, the file
# that is read, and the command. In the command, OUT stands for the output's path, OUTDIR for its
# folder, TRAIN for $train.
table() {
  cat <<'END'
o.chain r.json chain r.json -o OUT
o.actions chain.in schedule chain.in --memory 100000000 --strategy none --actions OUT
o.svg r.json compare r.json --sweep --svg OUT
o.html r.json audit r.json --html OUT
o.trace r.json audit r.json --trace OUT
o.csv p.csv pack p.csv -o OUT
o.profile r.json profile r.json --threads 1 -o OUT
o.rows plan/plan.bin TRAIN --trace OUT
o.manifest plan/plan.bin TRAIN --manifest OUT
o.manifest plan/manifest.json TRAIN --manifest OUT
o.log plan/plan.bin TRAIN --log OUT
OUTDIR/plan.h r.json plan r.json -o OUTDIR
OUTDIR/manifest.json r.json plan r.json -o OUTDIR
OUTDIR/plan.bin r.json plan r.json --binary -o OUTDIR
OUTDIR/net.json net.onnx import net.onnx -o OUTDIR/net.json
OUTDIR/net.graph.json net.onnx import net.onnx -o OUTDIR/net.json
OUTDIR/net.safetensors net.onnx import net.onnx -o OUTDIR/net.json
END
}
table >writers
[ "$(wc -l <writers)" -ge 17 ] || fail "the table has lost writers"
while read -r output input command; do
  mkdir -p d
  path=$(echo "$output" | sed -e 's|OUTDIR|d|')
  set -- $(echo "$command" | sed -e "s|TRAIN|$train|" -e "s|OUTDIR|d|" -e "s|OUT\$|$path|")
  cp "$input" was
  echo "mine, of years" >"$path"
  refused 1 "$path" "$@"
  [ "$(cat "$path")" = "mine, of years" ] || fail "$*: overwrites a file of the user's"
  [ "$(find d -type f | wc -l)" -le 1 ] || fail "$*: leaves $(find d -type f) although it was refused"
  rm "$path"
  ln -s "$(pwd)/$input" "$path"
  refused 1 "would be lost\|input" "$@"
  [ -L "$path" ] && cmp -s "$input" was || fail "$*: overwrites its input through a link"
  rm "$path"
  ln "$input" "$path"
  refused 1 "would be lost\|input" "$@"
  cmp -s "$input" was || fail "$*: overwrites its input through a hard link"
  rm "$path"
  ln -s no/such/file "$path"
  case $command in *--log*) rm "$path" ;; *) refused 1 "link" "$@"; rm "$path" ;; esac
  : >"$path"
  works "$@"
  [ -s "$path" ] || fail "$*: writes nothing"
  works "$@"
  ! find . -maxdepth 2 -name '*.new-*' | grep -q . || fail "$*: leaves a file"
  rm -rf d "$path"
done <writers

# An imported recipe that a user has changed belongs to the user.
works import net.onnx -o i.json
sed -i 's/"steps": 100/"steps": 7/' i.json
refused 1 "i.json" import net.onnx -o i.json
grep -q '"steps": 7' i.json || fail "import loses a recipe that was changed"
! grep -qF "$scratch" i.json i.safetensors || fail "what import writes holds a path of this machine"
# Data that --data names are no output, whatever their name.
cp i.safetensors data.safetensors
refused 1 "data.safetensors" import net.onnx -o data.json --data tensors=data.safetensors
cmp -s i.safetensors data.safetensors || fail "import overwrites its data"

# Folders: a folder whose files only have names of snapshot files is kept. So is a snapshot of
# another run that is at a later step than the new run.
mkdir theirs && echo '{"theirs": 1}' >theirs/training.json
refused 1 "theirs" $train --save theirs
rm theirs/training.json && echo '{"model_type": "gpt2"}' >theirs/config.json
refused 1 "theirs" $train --save theirs
[ "$(cat theirs/config.json)" = '{"model_type": "gpt2"}' ] || fail "--save overwrites a config"
refused 1 "holds a snapshot after step 3" $train --save snap
works $train --save snap --continue
works $train --save snap --resume snap
works $train --save snap --overwrite --steps 2
refused 2 "overwrite" $train --overwrite
! grep -q "$scratch" snap/training.json || fail "a snapshot holds a path of this machine"
! grep -rq "$scratch" snap || fail "a snapshot holds a path of this machine"

# --keep also counts the snapshots that a continued run put aside earlier.
works $train --save kept --keep 3 --save-every 1
works $train --save kept --keep 2 --save-every 1 --steps 5 --continue
[ "$(ls -d kept* | tr '\n' ' ')" = "kept kept.step-4 " ] || fail "--keep 2 leaves $(ls -d kept*)"

# If the snapshot cannot be put in place after the training, it is written to another path, which
# the message names.
"$build/reprise" $train --save busy --steps 100000 --log busy.log >words 2>&1 &
process=$!
n=0; until [ -s busy.log ]; do n=$((n + 1)); [ $n -lt 300 ] || fail "a training does not begin: $(cat words)"; sleep 0.1; done
mkdir busy && echo mine >busy/thesis
kill -TERM $process
status=0; wait $process || status=$?
[ "$status" = 1 ] || fail "a training whose snapshot is refused ends with $status: $(cat words)"
grep -q "the weights after step [0-9]* are in .*rn.rescued-" words || fail "the end does not say where the weights are: $(cat words)"
[ "$(cat busy/thesis)" = mine ] && [ -s "$(ls -d rn.rescued-*)/model.safetensors" ] || fail "the weights are lost, or the user's file is"

# Snapshots contain no paths of this machine. After a snapshot and its data are moved together, the
# snapshot still finds the data.
mkdir -p here/data
printf '\0\0\010\003\0\0\0\010\0\0\0\014\0\0\0\014' >here/data/train-images-idx3-ubyte
head -c 1152 /dev/urandom >>here/data/train-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\010\0\1\2\3\4\0\1\2' >here/data/train-labels-idx1-ubyte
sed -e 's|{"kind": "synthetic"}|{"kind": "idx", "path": "data"}|' -e 's/\[12, 12, 3\]/[12, 12, 1]/' r.json >here/r.json
works plan here/r.json --binary -o here/plan
works train here/plan/plan.bin --threads 1 --no-tune --quiet --save here/snap
! grep -rq "$scratch" here/snap || fail "a snapshot holds a path of this machine"
grep -q '"../data' here/snap/training.json || fail "a snapshot does not say where its data are"
mv here there
works plan there/r.json --binary -o there/plan
works train there/plan/plan.bin --threads 1 --no-tune --quiet --save there/snap --continue --steps 4
! grep -q "another .data" words || fail "a snapshot that was moved with its data is of other data: $(cat words)"

# A killed run's leftover is removed; a running process's file and other programs' files are kept.
printf '{"written_by": "reprise chain"' >left.new-999999999
printf 'mine' >left.new-999999998
printf '{"written_by": "reprise chain"' >left.new-$$
works chain r.json -o left
[ ! -e left.new-999999999 ] || fail "a leftover stays"
[ -e left.new-999999998 ] && [ -e left.new-$$ ] || fail "a file goes that is no leftover"
rm left.new-*

# A path of an open descriptor, or of a device, is written directly and not replaced by a new file.
"$build/reprise" chain r.json -o /dev/stdout >out.json || fail "/dev/stdout is refused"
grep -q written_by out.json || fail "nothing is written to /dev/stdout"
[ -e /dev/stdout ] || fail "/dev/stdout is gone"
works chain r.json -o /dev/null

# An empty or relative HOME names no cache.
status=0; (unset XDG_CACHE_HOME; HOME=here "$build/reprise" train r.json --threads 1 --no-tune >words 2>&1) || status=$?
[ ! -e here ] || fail "a relative HOME makes a folder"
