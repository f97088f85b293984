#!/bin/sh
# Checks that the declarations in ports/cuda/driver.h agree with cuda.h, and so does the table of
# the driver's functions (cuda_driver_abi.h): their names with versions, and how arguments are
# passed. The driver's library must export every one of them. Reason: the port includes no header of
# CUDA, and a wrong layout would show only on a card. The test is skipped without the toolkit.
set -eu
cd "$(dirname "$0")/../../.."
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
stub=$toolkit/lib64/stubs/libcuda.so
if [ ! -e "$toolkit/include/cuda.h" ] || [ ! -e "$stub" ]; then echo "skipped: no CUDA toolkit here to compare the driver's types with"; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
same() {  # EXPRESSIONS: true if they hold for both headers
  cat >"$scratch/same.cpp" <<END
#include <cstddef>
#include <cuda.h>
#include "ports/cuda/driver.h"
using namespace reprise;
constexpr bool is(CUdevice_attribute theirs, CudaDeviceFact ours) { return static_cast<int>(theirs) == static_cast<int>(ours); }
static_assert($1);
END
  ${CXX:-g++} -std=c++20 -I. -I"$toolkit/include" -fsyntax-only "$scratch/same.cpp" 2>"$scratch/words"
}
for each in \
  'sizeof(CUmemLocation) == sizeof(CudaMemoryLocation) && offsetof(CUmemLocation, id) == offsetof(CudaMemoryLocation, device)' \
  'sizeof(CUmemAllocationProp) == sizeof(CudaMemoryKind)' \
  'offsetof(CUmemAllocationProp, requestedHandleTypes) == offsetof(CudaMemoryKind, shared_by)' \
  'offsetof(CUmemAllocationProp, location) == offsetof(CudaMemoryKind, location)' \
  'offsetof(CUmemAllocationProp, win32HandleMetaData) == offsetof(CudaMemoryKind, windows)' \
  'sizeof(CUmemAccessDesc) == sizeof(CudaMemoryAccess) && offsetof(CUmemAccessDesc, flags) == offsetof(CudaMemoryAccess, flags)' \
  'CudaMemoryLocation{}.type == CU_MEM_LOCATION_TYPE_DEVICE && CudaMemoryKind{}.type == CU_MEM_ALLOCATION_TYPE_PINNED' \
  'CudaMemoryAccess{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && CU_MEM_ALLOC_GRANULARITY_RECOMMENDED == 1' \
  'CU_STREAM_NON_BLOCKING == 1 && CU_EVENT_DISABLE_TIMING == 2 && CUDA_ERROR_NO_DEVICE == 100 && sizeof(CUdeviceptr) == 8' \
  'is(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CudaDeviceFact::kMultiprocessors) && is(CU_DEVICE_ATTRIBUTE_INTEGRATED, CudaDeviceFact::kIsIntegrated)' \
  'is(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CudaDeviceFact::kMajor) && is(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CudaDeviceFact::kMinor)' \
  'is(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, CudaDeviceFact::kHasVirtualMemory)'; do
  same "$each" || { echo "not as cuda.h has it: $each" >&2; cat "$scratch/words" >&2; exit 1; }
done
! same 'sizeof(CUmemAllocationProp) == 1' || { echo "cuda_driver: sees no difference" >&2; exit 1; }
# The table, one function a line: the name to which cuda.h expands, and the types of the arguments
# of the function declared there.
abi=tests/ports/cards/cuda_driver_abi.h
functions=$(sed -nE 's/^ *\{"(cu[A-Za-z0-9]*)", "([a-zA-Z0-9_]*)", "([p48]*)"\},$/\1 \2 \3/p' $abi)
table_program() {
  printf '#include <cuda.h>\n#include <cstdio>\n#include <string>\n#include "tests/ports/cards/cuda_driver_abi.h"\n'
  printf '#define TEXT_OF(x) #x\n#define TEXT(x) TEXT_OF(x)\nint main() {\n'
  echo "$functions" | while read -r written name arguments; do
    echo "  std::puts((std::string(\"$written \") + TEXT($written) + ' ' + reprise::test::arguments_of(decltype(&$written){})).c_str());"
  done
  echo '}'
}
table_program >"$scratch/table.cpp"
${CXX:-g++} -std=c++20 -I. -I"$toolkit/include" "$scratch/table.cpp" -o "$scratch/table"
# cuda.h encloses names in parentheses if they may be those of per-thread streams.
"$scratch/table" | tr -d '()' >"$scratch/of_cuda"
echo "$functions" | diff - "$scratch/of_cuda" >&2 || { echo "$abi is not as cuda.h has it" >&2; exit 1; }
! echo "$functions" | sed 's/cuMemAlloc_v2/cuMemAlloc/' | diff -q - "$scratch/of_cuda" >/dev/null || { echo "cuda_driver: sees no difference of names" >&2; exit 1; }
nm -D --defined-only "$stub" | awk '{ print $3 }' | sort >"$scratch/exported"
names=$(grep -o '"cu[A-Z][A-Za-z0-9_]*"' ports/cuda/driver_functions.cpp | tr -d '"')
[ "$(echo "$names" | sort)" = "$(echo "$functions" | cut -d' ' -f2 | sort)" ] || { echo "ports/cuda/driver_functions.cpp asks for others than cuda_driver_abi.h has" >&2; exit 1; }
for name in $names; do grep -qx "$name" "$scratch/exported" || { echo "ports/cuda/driver_functions.cpp: the driver has no $name" >&2; exit 1; }; done
echo "$(echo "$names" | wc -l) functions of the driver, and its types, are as CUDA has them"
