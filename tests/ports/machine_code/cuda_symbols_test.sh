#!/bin/sh
# Checks which CUDA functions the objects of cuda/ call: only those of the list below. A step
# allocates nothing and waits for nothing. The test reads the objects that the fibres run, which
# every build has: CUDA's run time there consists of functions with those names, none of them inline
# (tests/ports/fibres/cuda_fibre_runtime.h). Reason: one cudaMalloc or cudaDeviceSynchronize in a
# kernel's launcher would break the plan's promise without a wrong result. BUILD names the output
# folder.
set -eu
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}
objects=$(find "$build/fibre/cuda" -name '*.o' 2>/dev/null | sort)
if [ -z "$objects" ]; then echo "no objects in $build/fibre/cuda: make it first" >&2; exit 1; fi

# Functions that a file may call. A launch is no such call, but the query of its result is.
allowed() {
  echo cudaGetLastError cudaGetErrorString
  case $1 in
    # The host's access to a card's memory.
    cuda_host_access) echo cudaMemcpyAsync cudaStreamSynchronize cudaEventRecord cudaEventSynchronize cudaStreamWaitEvent ;;
    # Queries once what the device can run.
    cuda_backend) echo cudaFuncGetAttributes ;;
    # Records a program's rows as a graph.
    cuda_recorder)
      echo cudaStreamBeginCapture cudaStreamEndCapture cudaGraphInstantiate cudaGraphUpload cudaGraphLaunch cudaGraphDestroy cudaGraphExecDestroy ;;
  esac
}
# called OBJECT: prints the functions of CUDA's run time and driver that the object references.
called() { nm -P "$1" | cut -d' ' -f1 | c++filt | sed -nE 's/^([a-zA-Z_]+ )?(cu(da)?[A-Z][A-Za-z0-9_]*)([<(].*)?$/\2/p' | sort -u; }
# refused OBJECT NAME: prints those that a file of that name may not call.
refused() { for symbol in $(called "$1"); do case " $(allowed "$2" | paste -sd" ") " in *" $symbol "*) ;; *) echo "$symbol" ;; esac; done; }

bad=
for object in $objects; do
  name=$(basename "$object" .o)
  found=$(refused "$object" "$name" | paste -sd' ')
  [ -z "$found" ] || { echo "cuda/$name.cu may not call $found" >&2; bad=1; }
done
[ -z "$bad" ] || exit 1

# Proves that the test finds calls in these objects, and forbidden ones in a planted object.
for seen in cuda_host_access:cudaMemcpyAsync cuda_host_access:cudaStreamSynchronize elementwise:cudaGetLastError; do
  called "$(find "$build/fibre/cuda" -name "${seen%:*}.o")" | grep -qx "${seen#*:}" \
    || { echo "cuda_symbols: does not see ${seen#*:} in ${seen%:*}" >&2; exit 1; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/planted.cu" <<'CU'
#include "cuda/launch.h"
void allocate(void** p) { (void)cudaMalloc(p, 8); }
void allocate_pinned(void** p) { (void)cudaMallocHost(p, 8); }
void release(void* p) { (void)cudaFree(p); }
void wait_for_all() { (void)cudaDeviceSynchronize(); }
void wait_for_stream() { (void)cudaStreamSynchronize(nullptr); }
void wait_for_event(cudaEvent_t e) { (void)cudaEventSynchronize(e); }
void copy(void* to, const void* from) { (void)cudaMemcpy(to, from, 8, cudaMemcpyDeviceToHost); }
extern "C" int cuMemAlloc(void*);
int allocate_by_driver(void* p) { return cuMemAlloc(p); }
CU
${CXX:-g++} -std=c++20 -O2 -I. -x c++ -include tests/ports/fibres/cuda_fibre.h -c "$scratch/planted.cu" \
  -o "$scratch/planted.o"
for symbol in cudaMalloc cudaMallocHost cudaFree cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaMemcpy cuMemAlloc; do
  refused "$scratch/planted.o" linear | grep -qx "$symbol" || { echo "cuda_symbols: would not see $symbol" >&2; exit 1; }
done
echo "$(printf '%s\n' $objects | wc -l) objects of cuda call what they may of CUDA: no allocation, and a wait in cuda_host_access alone"
