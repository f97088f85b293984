// The CUDA backend: the table that dispatch calls.
// Here so that a product can name CUDA without naming its kernels, or including CUDA's headers.
#pragma once

#include "lib/backend.h"

namespace reprise {

// What is known of the device once it is chosen.
struct CudaMachine {
  char kernel_set[64] = {};  // "cuda/COMPILER/sm_NN": its functions and its tensor cores decide the bits
};

// Once, after the device is chosen.
void choose_cuda_machine(CudaMachine& machine);

// Holds the layer-norm family; every other kernel is null, and a plan that asks for one must be refused at bind. The table points into
// `machine`, which must outlive it.
Backend cuda_backend(const CudaMachine& machine);

}  // namespace reprise
