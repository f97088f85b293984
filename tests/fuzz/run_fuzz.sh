#!/usr/bin/env bash
# Runs every fuzz target over RUNS inputs (a million), from seeds that tests/golden and tests/data give.
# A finding stays in $BUILD/fuzz/findings. Usage: tests/fuzz/run_fuzz.sh BINARY...
set -eu
BUILD=${BUILD:-build}; RUNS=${RUNS:-1000000}
corpus=$BUILD/fuzz/corpus; findings=$BUILD/fuzz/findings
mkdir -p "$findings"
seed() { mkdir -p "$corpus/$1"; cat >"$corpus/$1/$2"; }
header() { printf '%b' "$(printf '\\x%02x\\0\\0\\0\\0\\0\\0\\0' "${#1}")"; printf '%s' "$1"; }  # of a safetensors file

for text in 0 1 7GiB 1.5GiB 512MiB 700KB 7XB 9223372036854775807 9223372036854775808 0.0000001TiB; do printf %s "$text" | seed bytes "$text"; done
for folder in tests/golden/parity/*/; do seed recipe "$(basename "$folder")" <"$folder/recipe.json"; done
for recipe in tools/recipes/*.json; do seed recipe "$(basename "$recipe")" <"$recipe"; done
seed chain two <<'JSON'
{"input_bytes":2,"links":[
{"name":"a","forward_cost":3,"boundary_bytes":2,"forward_scratch_bytes":1,"tapes":[{"bytes":5,"backward_cost":6,"scratch_bytes":1,"forward_scratch_bytes":2},
{"bytes":3,"backward_cost":7.5,"scratch_bytes":1}],"residues":[{"bytes":1,"forward_cost":1}]},
{"name":"loss","forward_cost":1e3,"boundary_bytes":0,"forward_scratch_bytes":0,"tapes":[{"bytes":0,"backward_cost":1,"scratch_bytes":0}],"residues":[{"bytes":0,"forward_cost":1e3}]}]}
JSON
seed pack input.12 <tests/data/minimalloc/input.12.csv
head -n 9 tests/data/minimalloc/A.1048576.csv | seed pack A
{ header '{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}'; printf 12345678; } | seed safetensors one
{ header '{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}}'; printf 12345678; } | seed safetensors two
{ header '{"images":{"dtype":"F32","shape":[1,1,2,2],"data_offsets":[0,16]},"labels":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}}'
  printf '0123456789abcdef\3\0\0\0\0\0\0\0'; } | seed tensors one
images='\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh'; labels='\0\0\10\1\0\0\0\2\1\2'
{ printf '\12'; printf "$images"; printf "$labels"; } | seed idx plain
{ printf "\\x$(printf %02x "$(printf "$labels" | gzip -n | wc -c)")"; printf "$images" | gzip -n; printf "$labels" | gzip -n; } | seed idx gzip
seed config gpt2 <<<'{"model_type":"gpt2","vocab_size":256,"n_positions":128,"n_embd":64,"n_layer":2,"n_head":4,"n_inner":null,"activation_function":"gelu_new"}'
seed training gpt2 <<'JSON'
{"format":1,"plan_format":1,"step":3,"kernel_set":"fuzz","backend":"cpu","recipe":{"model":{"activation_function":"gelu_new","attn_pdrop":0.1,"embd_pdrop":0.1,"family":"gpt2","initializer_range":0.02,"layer_norm_epsilon":1e-05,"n_embd":768,"n_head":12,"n_inner":3072,"n_layer":12,"n_positions":1024,"resid_pdrop":0.1,"tie_word_embeddings":true,"vocab_size":50257},"batch":1,"seed":2}}
JSON
seed profile two <<'JSON'
{"format":1,"backend":"cpu","kernel_set":"portable","processor":"any","threads":2,"micro_batch_seconds":1e-5,
"kernels":[{"key":"relu.forward f32[8] f32[8]","seconds":1e-6,"runs":9},{"key":"copy.forward f32[8] f32[8]","seconds":2.5e-6,"runs":3}]}
JSON

for target in "$@"; do
  name=$(basename "$target" _fuzz)
  case $name in bytes) longest=32 ;; idx) longest=120 ;; tensors | safetensors) longest=400 ;; profile) longest=500 ;; *) longest=1024 ;; esac
  echo "fuzz $name: $RUNS inputs of up to $longest bytes"
  nice -n 10 "$target" -runs="$RUNS" -max_len=$longest -timeout=20 -rss_limit_mb=2048 -print_funcs=0 -print_final_stats=1 \
    -artifact_prefix="$findings/$name-" "$corpus/$name" 2>"$findings/$name.log" \
    || { tail -n 40 "$findings/$name.log" >&2; echo "fuzz $name: found an input, in $findings" >&2; exit 1; }
  sed -n 's/^stat::number_of_executed_units: */  inputs run /p' "$findings/$name.log"
done
