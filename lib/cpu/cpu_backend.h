// The CPU backend: the table that dispatch calls.
// Here so that a product can name the CPU without naming its kernels.
// It must not know what runs inside a kernel.
#pragma once

#include "lib/backend.h"

namespace reprise {

// kernel_set() writes its text anew in one static buffer: call it from one thread, after select_gemm_tile().
extern const Backend kCpuBackend;

inline const Backend& cpu_backend() { return kCpuBackend; }

}  // namespace reprise
