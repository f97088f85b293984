#!/bin/sh
# Tests which folders may include which: lib -> only the standard library (gemm_blis.cpp -> BLIS);
# cuda -> lib; ports -> lib, cuda (ports/mpi -> MPI); tools -> lib, tools. The main programs of
# tools (reprise*.cpp, train*.cpp, peers_mpi.cpp) -> also the ports that they pass on. Within tools:
# files < plan < run. No file may be
# named utils, common, misc or helper. The script first proves on a tree of its own that it detects
# each fault.
set -eu
cd "$(dirname "$0")/../.."

standard='(algorithm|array|atomic|bit|cfloat|cinttypes|climits|cmath|cstddef|cstdint|cstdlib|cstring|initializer_list|limits|type_traits|utility)'
intrinsics='(immintrin|xmmintrin|arm_neon|arm_mve)\.h'

# The only headers of backends that tools may include.
rules='tools/plan/costs/backends.cpp	"cuda/cuda_rules.h"
tools/plan/costs/backends.cpp	"lib/cpu/cpu_rules.h"'

# includes FOLDER...: prints lines "file<TAB>included", with <> or "".
includes() {
  find "$@" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -exec \
    sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*([<"][^>"]*[>"]).*/\1/p;T;F' /dev/null {} + | paste - - 2>/dev/null | awk -F'\t' '{print $2 "\t" $1}'
}

# refuse RULE ALLOWED FOLDER: prints every include of FOLDER that does not match ALLOWED.
refuse() {
  includes "$3" | grep -vE "	($2)\$" | sed "s|^|$1: |" || true
}

faults() {
  includes lib | grep -vE "	(<$standard>|<$intrinsics>|\"lib/[^\"]*\")\$" | grep -vE '^lib/cpu/gemm/gemm_blis\.cpp	<blis(/blis)?\.h>$' | sed 's/^/lib -> nothing: /' || true
  [ ! -d cuda ] || refuse 'cuda -> lib' "<$standard>|<cuda[^>]*>|<mma\.h>|\"(lib|cuda)/[^\"]*\"" cuda
  # Exempt are whole programs and their batch.
  refuse 'ports -> lib, cuda' '<[^>]*>|"(lib|cuda|ports)/[^"]*"' ports | grep -vE '^[^:]*: ports/cortex_m/(train\.cpp|adapt\.cpp|counted_batch\.h)	"plan\.h"$' || true
  includes tools | grep -vE '	(<[^>]*>|"(lib|tools)/[^"]*")$' | grep -vE '^tools/train(_cuda|_auto|_mpi)?\.cpp	"plan\.h"$|^tools/train_auto\.cpp	"cuda/plan\.h"$' | grep -vF "$rules" \
    | grep -vE '^tools/(reprise|reprise_cuda|train|train_auto)\.cpp	"ports/linux/linux_port\.h"$|^tools/(reprise_cuda|train_cuda|train_auto)\.cpp	"ports/cuda/cuda_port\.h"$|^tools/train_mpi\.cpp	"ports/mpi/mpi_port\.h"$|^tools/peers_mpi\.cpp	"ports/mpi/mpi_peers\.h"$|^tools/reprise_commands\.cpp	"ports/cuda/card\.h"$' | sed 's/^/tools -> lib, tools: /' || true
  includes tools | grep -E '	"lib/cpu/[^"]*"$' | grep -vF "$rules" | sed 's/^/tools see of a backend its rules alone, in backends.cpp: /' || true
  includes tools | grep -E '^tools/files/.*	"tools/(plan|run)/|^tools/plan/.*	"tools/run/' \
    | sed 's/^/files < plan < run: /' || true
  includes tools \
    | grep -E '^tools/run/session/.*	"tools/run/(inference|training)/|^tools/run/inference/.*	"tools/run/training/' \
    | sed 's/^/training -> inference -> session: /' || true
  includes lib cuda ports tools | grep -E '	<blis' | grep -v '^lib/cpu/gemm/gemm_blis\.cpp	' \
    | sed 's/^/only gemm_blis.cpp includes BLIS: /' || true
  includes lib cuda ports tools | grep -E '	<mpi' | grep -v '^ports/mpi/' | sed 's/^/only ports\/mpi includes MPI: /' || true
  find lib cuda ports tools tests \( -name 'util*' -o -name 'common*' -o -name 'misc*' -o -name 'helper*' \) ! -name '*.md' | sed 's/^/no such name: /'
}

found=$(faults)
if [ -n "$found" ]; then printf '%s\n' "$found" >&2; exit 1; fi

# Proves that the test detects each fault.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
for folder in lib/cpu cuda ports/linux tools/files/io tools/plan/planning tools/run/session tools/run/inference tests; do
  mkdir -p "$tree/$folder"
done
cd "$tree"
try() {  # FILE LINE: one fault must be found
  printf '%s\n' "$2" >"$1"
  [ "$(faults | wc -l)" -ge 1 ] || { echo "law_of_includes: does not see $1: $2" >&2; exit 1; }
  rm "$1"
}
[ -z "$(faults)" ] || { echo "law_of_includes: sees faults in an empty tree" >&2; exit 1; }
try lib/a.cpp '#include <iostream>'
try lib/a.cpp '#include <vector>'
try lib/a.h '#include "tools/a.h"'
try lib/a.h '  #  include "a.h"'
try lib/cpu/a.cpp '#include <blis.h>'
try cuda/a.cu '#include "ports/linux/linux_port.h"'
try ports/linux/a.cpp '#include "tools/a.h"'
try ports/linux/a.cpp '#include <blis.h>'
try ports/linux/a.cpp '#include <mpi.h>'
try tools/run/session/a.cpp '#include <mpi.h>'
try tools/plan/planning/a.cpp '#include "tests/a.h"'
try tools/plan/planning/a.cpp '#include "ports/linux/linux_port.h"'
try tools/train.cpp '#include "ports/linux/linux_functions.h"'
try tools/train.cpp '#include "ports/cuda/cuda_port.h"'
try tools/train.cpp '#include "ports/mpi/mpi_port.h"'
try tools/train_mpi.cpp '#include "ports/mpi/mpi_peers.h"'
try tools/peers_mpi.cpp '#include "ports/mpi/mpi_port.h"'
try tools/plan/planning/a.cpp '#include "lib/cpu/gemm/gemm.h"'
try tools/plan/planning/a.cpp '#include "cuda/cuda_rules.h"'
try tools/files/io/a.h '#include "tools/plan/graph/a.h"'
try tools/files/io/a.cpp '#include "tools/run/session/a.h"'
try tools/plan/planning/a.h '#include "tools/run/session/a.h"'
try tools/run/session/a.h '#include "tools/run/inference/a.h"'
try tools/run/inference/a.cpp '#include "tools/run/training/a.h"'
try tools/plan/planning/utils.h ''
echo "includes follow the law"
