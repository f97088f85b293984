// Elementary functions of f64 whose bits depend neither on a C library nor on the processor. They
// use sums, products and quotients of IEEE 754, in the order written here and never fused. So a
// training can move from a board to a host and back with the same bits. C libraries differ in the
// last bit: newlib from glibc, and glibc from itself if another processor can fuse. Kernels that
// loop over elements use functions of f32 that vectorise (lib/cpu/vector_math.h).
//
// Errors are in units in the last place (ulp), tested by tests/ops/portable_math_test.cpp. A NaN
// gives a NaN. Numbers below 2^-1022 in magnitude (denormals) are treated as follows:
//   results     portable_exp and portable_power return 0 instead of a denormal. portable_log1p and
//               portable_expm1 return x itself for |x| < 2^-54, and the sine of a denormal is the
//               same denormal.
//   arguments   portable_power treats a denormal x as 0 on every processor. portable_log and
//               portable_sine do so if the processor flushes denormals (lib/float_mode.h).
#pragma once

namespace reprise {

// Returns the natural logarithm; error below 0.53 ulp. Returns minus infinity for 0, a NaN for x <
// 0, and infinity for infinity.
double portable_log(double x);
// Returns log(1 + x); error below 0.53 ulp.
double portable_log1p(double x);
// Returns e^x; error below 0.54 ulp.
double portable_exp(double x);
// Returns e^x - 1; error below 0.80 ulp.
double portable_expm1(double x);
// Returns x^y for x >= 0, else a NaN; error below 0.55 ulp. Returns 1 for y = 0; otherwise 0^y is 0
// for y > 0 and infinity for y < 0.
double portable_power(double x, double y);
// Returns the cosine of x, in radians, for |x| up to 2^20, else a NaN. The error is below 0.80 ulp,
// or below 2^-80 if that is more, as near a zero of the cosine at a large angle.
double portable_cosine(double x);
// Returns the sine of x, with the same range and error.
double portable_sine(double x);

}  // namespace reprise
