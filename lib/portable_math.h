// Elementary functions of f64 whose bits no C library and no processor decides: sums, products and quotients of IEEE 754 in an order that is
// written here, none of them fused.
// Here because a training goes from a board to a host and back with the same bits, and C libraries differ in a last bit: newlib from glibc, and glibc
// from itself, by what the processor can fuse. Kernels in loops over elements have functions of f32 that vectorise (lib/cpu/vector_math.h).
//
// Errors are in units in the last place, by tests/ops/portable_math_test.cpp. NaN gives NaN. A result below 2^-1022 is zero, and an argument below that is
// zero wherever the processor flushes denormals (lib/float_mode.h).
#pragma once

namespace reprise {

// Below 0.53. Of 0 minus infinity, of less NaN, of infinity itself.
double portable_log(double x);
// log(1 + x), below 0.53.
double portable_log1p(double x);
// Below 0.54.
double portable_exp(double x);
// exp(x) - 1, below 0.80.
double portable_expm1(double x);
// x^y for x >= 0, below 0.55; NaN for less. 0^y is 0 for y > 0 and 1 for y = 0.
double portable_power(double x, double y);
// Below 0.80, for |x| up to 2^20; NaN beyond. Near a zero of a large angle's, as far off as 2^-80 where that is more.
double portable_cosine(double x);
double portable_sine(double x);

}  // namespace reprise
