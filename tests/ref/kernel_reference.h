// What the double-precision oracles say every output of a kernel case must be.
// Here so that one judge compares every kernel.
// It must not know the kernels, only the contracts of lib/op.h and lib/backend.h.
#pragma once

#include <vector>

#include "tests/ref/kernel_data.h"

namespace reprise::test {

using ref::Expected;

// outputs[i] belongs to argument i, empty where that is no output. The scalars' counts and flags are exact, the rest Expected.
struct CaseExpected {
  std::vector<Expected> outputs;
  StepScalars scalars{};
  Expected loss_sum, gradient_norm, clip_factor;
};

// Not defined for cases with a bad index or a non-finite loss. A convolution's statistics are left out: they are those of its y as the
// kernel has stored it.
CaseExpected expected(const KernelCase& c, const CaseData& data);

// Batch-norm's, of x [M,C].
struct ExpectedStatistics {
  Expected mean, rstd;
};
ExpectedStatistics expected_statistics(const Array& x, double epsilon);

}  // namespace reprise::test
