#!/bin/sh
# What ports/cuda/driver.h spells by itself is what cuda.h says, and every function that driver.cpp looks for is in the driver's library.
# Here because the port includes nothing of CUDA, and a wrong layout would show on a card alone. Without the toolkit it says so and passes.
set -eu
cd "$(dirname "$0")/../.."
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
stub=$toolkit/lib64/stubs/libcuda.so
if [ ! -e "$toolkit/include/cuda.h" ] || [ ! -e "$stub" ]; then echo "skipped: no CUDA toolkit here to compare the driver's types with"; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
same() {  # EXPRESSIONS: whether they hold of both
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
nm -D --defined-only "$stub" | awk '{ print $3 }' | sort >"$scratch/exported"
names=$(grep -o '"cu[A-Z][A-Za-z0-9_]*"' ports/cuda/driver.cpp | tr -d '"')
for name in $names; do grep -qx "$name" "$scratch/exported" || { echo "ports/cuda/driver.cpp: the driver has no $name" >&2; exit 1; }; done
echo "$(echo "$names" | wc -l) functions of the driver, and its types, are as CUDA has them"
