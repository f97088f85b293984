// A backend of CUDA's kernels, on which the fibres run cases, each with what its tensors let it touch.
// Here so that every test of kernels by fibres watches copies alike.
#pragma once

#include "tests/ops/kernel_run.h"
#include "tests/ports/cuda_fibre.h"

namespace reprise::test {

inline CaseDevice watched(const Backend& backend) { return {backend, {}, fibre::allow_memory}; }

}  // namespace reprise::test
