// The CUDA backend: the table that dispatch calls.
// Here so that a product can name CUDA without naming its kernels, or including CUDA's headers.
// It must not know what runs inside a kernel.
#pragma once

#include "lib/backend.h"

namespace reprise {

// Holds the layer-norm family; every other kernel is null, and a plan that asks for one must be refused at bind.
// kernel_set() writes its text anew in one static buffer: call it from one thread, after the device is chosen.
extern const Backend kCudaBackend;

inline const Backend& cuda_backend() { return kCudaBackend; }

}  // namespace reprise
