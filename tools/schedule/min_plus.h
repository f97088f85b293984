// o[n] = min(o[n], cost + x[n] + y[n]): nearly all the time that `optimal` takes is spent in this line.
// Its own file because it alone is compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace reprise {

// All arrays hold `count` values and fall with n (not strictly): a block that cannot improve o is skipped. y may be null:
// zeros. o must overlap neither x nor y. The sum is formed as (cost + x[n]) + y[n] on every machine, so choices can be found
// again by repeating it.
void lower_by_sum(float* o, const float* x, const float* y, float cost, int64_t count);
void lower_by_sum(double* o, const double* x, const double* y, double cost, int64_t count);

}  // namespace reprise
