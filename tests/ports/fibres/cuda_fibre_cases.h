// A backend of CUDA's kernels for the fibres. Before each case it tells the fibres which memory the
// kernel may touch. Every test that runs kernels on fibres uses this backend, so that all of them
// check asynchronous copies in the same way.
#pragma once

#include "tests/ops/kernel_run.h"
#include "tests/ports/fibres/cuda_fibre.h"

namespace reprise::test {

inline CaseDevice watched(const Backend& backend) { return {backend, {}, fibre::allow_memory}; }

}  // namespace reprise::test
