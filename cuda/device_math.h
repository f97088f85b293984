// exp, tanh, log and the normal distribution. Kernels do not call nvcc's own functions, because
// their bits change with the version of nvcc. They also differ from the C library, which tests
// would call when they run kernels on the CPU (tests/ports/fibres/cuda_fibre.h). The polynomials
// are the same as in lib/cpu/vector_math.h. Every fused product is written as fmaf.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda/launch.h"

namespace reprise {

// True if x is neither infinite nor NaN.
__device__ inline bool is_finite(double x) { return (std::bit_cast<uint64_t>(x) >> 52 & 0x7ffu) != 0x7ffu; }

// Returns e^x within 1 ulp; infinity above 88.72. Returns 0 below -87.33, because e^x is denormal.
// NaN stays NaN.
// Method: x = n ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r^2 p(r).
__device__ inline float device_exp(float x) {
  constexpr float kRound = 0x1.8p23f;  // x + kRound has the integer nearest to x in the low bits of its significand
  const float clamped = x > 89.0f ? 89.0f : (x < -88.0f ? -88.0f : x);
  const float shifted = fmaf(clamped, 0x1.715476p+0f, kRound);
  const float n = shifted - kRound;
  const float r = fmaf(-n, 0x1.7f7d1cp-20f, fmaf(-n, 0x1.62e4p-1f, clamped));
  float p = 1.3926199051e-3f;
  p = fmaf(p, r, 8.3631914315e-3f);
  p = fmaf(p, r, 4.1666554524e-2f);
  p = fmaf(p, r, 1.6666576915e-1f);
  p = fmaf(p, r, 0.5f);
  const float power = 1.0f + fmaf(r * r, p, r);
  // 2^n is applied in two factors, because n can be 128.
  const uint32_t biased = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 256u;  // n + 256
  const uint32_t half = biased >> 1, rest = biased - half;
  const float scaled = power * std::bit_cast<float>((half - 1u) << 23) * std::bit_cast<float>((rest - 1u) << 23);
  return x < -87.33f ? 0.0f : scaled;
}

// Returns e^x - 1 for x <= 0, within 2 ulp. NaN stays NaN.
__device__ inline float device_exp_minus_one(float x) {
  constexpr float kRound = 0x1.8p23f;
  const float clamped = x < -88.0f ? -88.0f : x;
  const float shifted = fmaf(clamped, 0x1.715476p+0f, kRound);
  const float n = shifted - kRound;
  const float r = fmaf(-n, 0x1.7f7d1cp-20f, fmaf(-n, 0x1.62e4p-1f, clamped));
  float p = 1.3926199051e-3f;
  p = fmaf(p, r, 8.3631914315e-3f);
  p = fmaf(p, r, 4.1666554524e-2f);
  p = fmaf(p, r, 1.6666576915e-1f);
  p = fmaf(p, r, 0.5f);
  const float power = std::bit_cast<float>(
      (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127u) << 23);  // 2^n
  return fmaf(power, fmaf(r * r, p, r), power - 1.0f);
}

// Returns log(1 + e) for e in [0, 1], within 2 ulp.
__device__ inline float device_log_one_plus(float e) {
  const float s = e / (2.0f + e), square = s * s, twice = s + s;
  float p = 1.342574901e-1f;
  p = fmaf(p, square, 1.411830990e-1f);
  p = fmaf(p, square, 2.000378032e-1f);
  p = fmaf(p, square, 3.333332017e-1f);
  return fmaf(twice, square * p, twice);
}

// Returns tanh(x) within 2 ulp.
__device__ inline float device_tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x, square = x * x;
  float p = -6.096714163e-3f;
  p = fmaf(p, square, 2.099717900e-2f);
  p = fmaf(p, square, -5.385090958e-2f);
  p = fmaf(p, square, 1.333276974e-1f);
  p = fmaf(p, square, -3.333332894e-1f);
  const float beyond = 1.0f - 2.0f / (1.0f + device_exp(2.0f * magnitude));
  const float outer = x < 0.0f ? -beyond : beyond;
  return magnitude < 0.625f ? fmaf(x, square * p, x) : outer;
}

// Returns P(Z < -a) for a standard normal Z and a >= 0, given e^(-a^2/2). The relative error is
// about 1e-7.
__device__ inline float normal_tail(float a, float exp_minus_half_square) {
  const float t = 1.0f / fmaf(0.3f, a, 1.0f);
  float q = -0.020857548450199978f;
  q = fmaf(q, t, 0.11373804778225749f);
  q = fmaf(q, t, -0.2313456704658912f);
  q = fmaf(q, t, 0.1960452425115637f);
  q = fmaf(q, t, -0.08302591111698822f);
  q = fmaf(q, t, 0.09811377097182593f);
  q = fmaf(q, t, 0.07770884966592413f);
  q = fmaf(q, t, 0.11038123240567055f);
  q = fmaf(q, t, 0.11955441549900653f);
  q = fmaf(q, t, 0.11968756945351995f);
  return exp_minus_half_square * (t * q);
}

// Returns the natural logarithm of a normal x > 0, within a few ulp. Returns x itself if x is
// infinite or NaN.
// Method: x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh s with s = (m - 1) / (m + 1).
// |s| < 0.172, so the eleventh term of the series is below 2^-58.
__device__ inline double device_log(double x) {
  if (!is_finite(x)) return x;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdull;
  const int64_t n = static_cast<int64_t>(bits - kRootHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(n) << 52));
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 21;
  for (int k = 19; k >= 3; k -= 2) sum = fma(sum, square, 1.0 / k);
  return fma(static_cast<double>(n), 0x1.62e42fefa39efp-1, 2 * fma(sum * square, s, s));
}

// Returns base^exponent by repeated squaring. The relative error is about `exponent` rounding
// errors.
__device__ inline double device_power(double base, uint64_t exponent) {
  double power = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= base;
    base *= base;
  }
  return power;
}

}  // namespace reprise
