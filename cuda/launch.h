// What a kernel file needs of CUDA beyond the language: launching, shared memory, unrolling, the Status of a launch.
// Here so that the same .cu file compiles with nvcc and, after tests/ports/cuda_fibre.h, as plain C++ that runs on the CPU.
#pragma once

#include <cstdint>

#include "lib/status.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define REPRISE_STRING_OF(x) #x
#define REPRISE_STRING(x) REPRISE_STRING_OF(x)
#define REPRISE_DEVICE_COMPILER "nvcc-" REPRISE_STRING(__CUDACC_VER_MAJOR__) "." REPRISE_STRING(__CUDACC_VER_MINOR__)

// Starts kernel(arguments...) on `queue`, a cudaStream_t or null for the default stream.
#define REPRISE_LAUNCH(kernel, grid, block, queue, ...) \
  (kernel)<<<(grid), (block), 0, static_cast<cudaStream_t>(queue)>>>(__VA_ARGS__)

// The same with so many bytes of dynamic shared memory for each block: with the static ones at most 99 KiB, what sm_86, sm_89 and sm_120 have
// (CUDA C++ Programming Guide, "Compute Capabilities"). Code for sm_80, which has 163, runs on sm_86 and sm_89 too. A grid has at most 65,535
// blocks in y and in z, and a kernel 4 KiB of parameters. tests/ports/cuda_launch_test.cpp demands it all of every launch.
#define REPRISE_LAUNCH_DYNAMIC(kernel, grid, block, shared_bytes, queue, ...) \
  (::reprise::allow_dynamic_shared((kernel), (shared_bytes)),                 \
   (kernel)<<<(grid), (block), (shared_bytes), static_cast<cudaStream_t>(queue)>>>(__VA_ARGS__))

// An array shared by the threads of a block. Written like this, and not as CUDA has it, so that the fibres can watch it.
#define REPRISE_SHARED(type, name, count) __shared__ type name[count]

#define REPRISE_UNROLL _Pragma("unroll")
#define REPRISE_ROLLED _Pragma("unroll 1")
#define REPRISE_UNROLL_BY_FOUR _Pragma("unroll 4")

namespace reprise {

// Past 48 KiB a kernel must be told. What is wrong shows at the launch, in launch_status().
template <typename Kernel>
void allow_dynamic_shared(Kernel* kernel, uint64_t bytes) {
  constexpr uint64_t kAlwaysAllowed = 48 * 1024;
  if (bytes > kAlwaysAllowed)
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace reprise

#elif !defined(REPRISE_CUDA_FIBRE)
#error "compile this with nvcc, or include tests/ports/cuda_fibre.h before it"
#endif

namespace reprise {

// In CUDA's own words; detail is the cudaError_t.
inline Status cuda_status(cudaError_t error) {
  if (error == cudaSuccess) return ok_status();
  return {Code::kBackend, cudaGetErrorString(error), static_cast<uint64_t>(error)};
}

// What became of the launches since the last call. A fault inside a running kernel shows only after it has run.
inline Status launch_status() { return cuda_status(cudaGetLastError()); }

}  // namespace reprise
