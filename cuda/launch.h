// The parts of CUDA that a kernel file needs in addition to C++: launches, shared memory,
// unrolling, the Status of a launch. A .cu file that uses only these compiles with nvcc. It also
// compiles as plain C++ that runs on the CPU, if tests/ports/fibres/cuda_fibre.h is included first.
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

// Starts a kernel with `shared_bytes` bytes of dynamic shared memory for each block. Static and
// dynamic shared memory together are at most 99 KiB, the limit of sm_86, sm_89 and sm_120 (CUDA C++
// Programming Guide, "Compute Capabilities"). sm_80 has 163 KiB, but its code also runs on sm_86
// and sm_89. A grid has at most 65,535 blocks in y and in z. The parameters of a kernel are at most
// 4 KiB. tests/ports/cards/cuda_launch_test.cpp checks these limits.
#define REPRISE_LAUNCH_DYNAMIC(kernel, grid, block, shared_bytes, queue, ...) \
  (::reprise::allow_dynamic_shared((kernel), (shared_bytes)),                 \
   (kernel)<<<(grid), (block), (shared_bytes), static_cast<cudaStream_t>(queue)>>>(__VA_ARGS__))

// Declares an array that the threads of a block share. A macro, so that the tests can replace
// CUDA's keyword and observe the array (tests/ports/fibres/cuda_fibre.h).
#define REPRISE_SHARED(type, name, count) __shared__ type name[count]

#define REPRISE_UNROLL _Pragma("unroll")
#define REPRISE_ROLLED _Pragma("unroll 1")
#define REPRISE_UNROLL_BY_FOUR _Pragma("unroll 4")

namespace reprise {

// Allows a kernel `bytes` of dynamic shared memory; CUDA requires this call above 48 KiB. If the
// call fails, launch_status() reports the error after the launch.
template <typename Kernel>
void allow_dynamic_shared(Kernel* kernel, uint64_t bytes) {
  constexpr uint64_t kAlwaysAllowed = 48 * 1024;
  if (bytes > kAlwaysAllowed)
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace reprise

#elif !defined(REPRISE_CUDA_FIBRE)
#error "compile this with nvcc, or include tests/ports/fibres/cuda_fibre.h before it"
#endif

namespace reprise {

// Returns the Status of a CUDA error: CUDA's text, with the cudaError_t as detail.
inline Status cuda_status(cudaError_t error) {
  if (error == cudaSuccess) return ok_status();
  return {Code::kBackend, cudaGetErrorString(error), static_cast<uint64_t>(error)};
}

// Returns the error of the launches since the last call. A fault inside a kernel is only reported
// after the kernel has run.
inline Status launch_status() { return cuda_status(cudaGetLastError()); }

}  // namespace reprise
