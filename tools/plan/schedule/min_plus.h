// The loop o[n] = min(o[n], cost + x[n] + y[n]), in which `optimal` spends nearly all its time. It
// has its own file because only this loop is compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace reprise {

// Lowers each o[n] to the sum if the sum is smaller. The arrays have `count` values, which must not
// increase with n. So a block of values that cannot improve o is detected from its ends and
// skipped. A null y counts as zeros. o must overlap neither x nor y. The sum is (cost + x[n]) +
// y[n] on every machine, so that the traceback computes the same sums and finds the same choice.
void lower_by_sum(float* o, const float* x, const float* y, float cost, int64_t count);
void lower_by_sum(double* o, const double* x, const double* y, double cost, int64_t count);

}  // namespace reprise
