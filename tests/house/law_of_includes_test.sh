#!/bin/sh
# The law of includes: lib -> nothing but the standard (gemm_blis.cpp -> BLIS); cuda -> lib; ports -> lib, cuda (ports/mpi -> MPI); tools -> lib, tools;
# of tools, the main programs, reprise.cpp, train*.cpp and peers_mpi.cpp, -> the ports that they hand on, too. No utils, common, misc.
# It first proves on a tree of its own that it sees each fault.
set -eu
cd "$(dirname "$0")/../.."

standard='(algorithm|array|atomic|bit|cfloat|cinttypes|climits|cmath|cstddef|cstdint|cstdlib|cstring|initializer_list|limits|type_traits|utility)'
intrinsics='(immintrin|xmmintrin|arm_neon|arm_mve)\.h'

# What tools see of the backends.
rules='tools/planning/backends.cpp	"cuda/cuda_rules.h"
tools/planning/backends.cpp	"lib/cpu/cpu_rules.h"'

# includes FOLDER...: lines "file<TAB>included", <> or "" kept.
includes() {
  find "$@" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -exec \
    sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*([<"][^>"]*[>"]).*/\1/p;T;F' /dev/null {} + | paste - - 2>/dev/null | awk -F'\t' '{print $2 "\t" $1}'
}

# refuse RULE ALLOWED FOLDER: every include of FOLDER that matches none of ALLOWED.
refuse() {
  includes "$3" | grep -vE "	($2)\$" | sed "s|^|$1: |" || true
}

faults() {
  includes lib | grep -vE "	(<$standard>|<$intrinsics>|\"lib/[^\"]*\")\$" | grep -vE '^lib/cpu/gemm_blis\.cpp	<blis(/blis)?\.h>$' | sed 's/^/lib -> nothing: /' || true
  [ ! -d cuda ] || refuse 'cuda -> lib' "<$standard>|<cuda[^>]*>|<mma\.h>|\"(lib|cuda)/[^\"]*\"" cuda
  refuse 'ports -> lib, cuda' '<[^>]*>|"(lib|cuda|ports)/[^"]*"' ports | grep -vE '^[^:]*: ports/cortex_m/(train\.cpp|adapt\.cpp|counted_batch\.h)	"plan\.h"$' || true  # whole programs, and their batch
  includes tools | grep -vE '	(<[^>]*>|"(lib|tools)/[^"]*")$' | grep -vE '^tools/train(_cuda|_auto|_mpi)?\.cpp	"plan\.h"$|^tools/train_auto\.cpp	"cuda/plan\.h"$' | grep -vF "$rules" \
    | grep -vE '^tools/(reprise|train|train_auto)\.cpp	"ports/linux/linux_port\.h"$|^tools/(train_cuda|train_auto)\.cpp	"ports/cuda/cuda_port\.h"$|^tools/train_mpi\.cpp	"ports/mpi/mpi_port\.h"$|^tools/peers_mpi\.cpp	"ports/mpi/mpi_peers\.h"$|^tools/reprise\.cpp	"ports/cuda/card\.h"$' | sed 's/^/tools -> lib, tools: /' || true
  includes tools | grep -E '	"lib/cpu/[^"]*"$' | grep -vF "$rules" | sed 's/^/tools see of a backend its rules alone, in backends.cpp: /' || true
  includes tools | grep -E '^tools/session/.*	"tools/(inference|training)/|^tools/inference/.*	"tools/training/' | sed 's/^/training -> inference -> session: /' || true
  includes lib cuda ports tools | grep -E '	<blis' | grep -v '^lib/cpu/gemm_blis\.cpp	' | sed 's/^/only lib\/cpu\/gemm_blis.cpp includes BLIS: /' || true
  includes lib cuda ports tools | grep -E '	<mpi' | grep -v '^ports/mpi/' | sed 's/^/only ports\/mpi includes MPI: /' || true
  find lib cuda ports tools tests \( -name 'util*' -o -name 'common*' -o -name 'misc*' -o -name 'helper*' \) ! -name '*.md' | sed 's/^/no such name: /'
}

found=$(faults)
if [ -n "$found" ]; then printf '%s\n' "$found" >&2; exit 1; fi

# Would it see one?
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/lib/cpu" "$tree/cuda" "$tree/ports/linux" "$tree/tools/planning" "$tree/tools/session" "$tree/tools/inference" "$tree/tests"
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
try tools/session/a.cpp '#include <mpi.h>'
try tools/planning/a.cpp '#include "tests/a.h"'
try tools/planning/a.cpp '#include "ports/linux/linux_port.h"'
try tools/train.cpp '#include "ports/linux/linux_functions.h"'
try tools/train.cpp '#include "ports/cuda/cuda_port.h"'
try tools/train.cpp '#include "ports/mpi/mpi_port.h"'
try tools/train_mpi.cpp '#include "ports/mpi/mpi_peers.h"'
try tools/peers_mpi.cpp '#include "ports/mpi/mpi_port.h"'
try tools/planning/a.cpp '#include "lib/cpu/gemm.h"'
try tools/planning/a.cpp '#include "cuda/cuda_rules.h"'
try tools/session/a.h '#include "tools/inference/a.h"'
try tools/inference/a.cpp '#include "tools/training/a.h"'
try tools/planning/utils.h ''
echo "includes follow the law"
