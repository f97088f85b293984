// exp, tanh, the normal distribution and a fixed-order sum, as straight-line code that compilers
// vectorise. The C library's functions do not vectorise without fast-math, and their bits change
// with its version.
#pragma once

#include <bit>
#include <cstdint>

#include "lib/cpu/vector_level.h"
#include "lib/cpu/vector_of.h"

namespace reprise {

// Parts of e^x = 2^n (1 + above), exact to 1 ulp: n is the difference of the bits of `shifted` and
// kExpRound. The parts follow from x = n ln 2 + r with |r| <= ln 2 / 2, and from e^r = 1 + r + r^2
// p(r). p is a Chebyshev fit of degree 4 (error below 1e-8).
constexpr float kExpRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the significand
struct ExpParts {
  float above, shifted;
};
REPRISE_INLINE ExpParts exp_parts(float x) {
  const float shifted = x * 0x1.715476p+0f + kExpRound;
  const float n = shifted - kExpRound;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;  // the high part of ln 2 has 15 bits: n * high is exact
  float p = 1.3926199051e-3f;
  p = p * r + 8.3631914315e-3f;
  p = p * r + 4.1666554524e-2f;
  p = p * r + 1.6666576915e-1f;
  p = p * r + 0.5f;
  return {r + r * r * p, shifted};
}

// Returns e^x within 1 ulp: infinity above 88.72; 0 below -87.33, where the result would be
// denormal; NaN for NaN.
REPRISE_INLINE float vector_exp(float x) {
  const ExpParts e = exp_parts(x > 89.0f ? 89.0f : (x < -88.0f ? -88.0f : x));
  // Multiplies by 2^n in two factors, because n can be 128 and the largest exponent is 127.
  const uint32_t n = std::bit_cast<uint32_t>(e.shifted) - std::bit_cast<uint32_t>(kExpRound) + 256u;
  const uint32_t half = n >> 1, rest = n - half;
  const float scaled =
      (1.0f + e.above) * std::bit_cast<float>((half - 1u) << 23) * std::bit_cast<float>((rest - 1u) << 23);
  return x < -87.33f ? 0.0f : scaled;
}

// Returns the same bits as vector_exp(x) for x <= 88, in two thirds of the instructions. Adds n
// directly to the exponent: the shift by 23 removes all bits of kExpRound.
REPRISE_INLINE float vector_exp_at_most_88(float x) {
  const ExpParts e = exp_parts(x < -88.0f ? -88.0f : x);
  const float power = 1.0f + e.above;
  const float scaled =
      std::bit_cast<float>(std::bit_cast<uint32_t>(power) + (std::bit_cast<uint32_t>(e.shifted) << 23));
  return x >= -87.33f ? scaled : power - power;  // below -87.33 the result is 0; for a NaN it is a NaN
}

constexpr float kLastExp = 0x1.62e42ep+6f;  // e^x is infinite for larger x
// Returns the same bits as vector_exp(x) for x from -87.33 to kLastExp, in half of the
// instructions; undefined for other x. The caller must clamp x by a conditional expression. x may
// be a product, which a compiler could fuse with a sum in exp_parts(); no compiler fuses through a
// condition.
REPRISE_INLINE float exp_in_range(float x) {
  const ExpParts e = exp_parts(x);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(1.0f + e.above) + (std::bit_cast<uint32_t>(e.shifted) << 23));
}

// Returns 1 + e^x with the same bits as 1 + vector_exp(x); NaN stays NaN. Clamps x at -87, because
// a smaller e^x does not change the sum.
REPRISE_INLINE float vector_one_plus_exp(float x) {
  const float e = exp_in_range(x < -87.0f ? -87.0f : x);
  return 1.0f + (x <= kLastExp ? e : x + __builtin_inff());
}

// Returns e^x - 1 for x <= 0, within 2 ulp; NaN stays NaN. Computes 2^n - 1 and 2^n (e^r - 1)
// separately and adds them, so that no digits cancel.
REPRISE_INLINE float vector_exp_minus_one(float x) {
  const ExpParts e = exp_parts(x < -88.0f ? -88.0f : x);
  // 2^n.
  const float power =
      std::bit_cast<float>((std::bit_cast<uint32_t>(e.shifted) - std::bit_cast<uint32_t>(kExpRound) + 127u) << 23);
  return power * e.above + (power - 1.0f);
}

// Returns log(1 + e) for e in [0, 1] within 2 ulp. With s = e / (2 + e), the logarithm is 2 artanh
// s = 2s + 2s s^2 p(s^2). p is a Chebyshev fit of degree 3 (error below 2e-8).
REPRISE_INLINE float vector_log_one_plus(float e) {
  const float s = e / (2.0f + e), square = s * s, twice = s + s;
  float p = 1.342574901e-1f;
  p = p * square + 1.411830990e-1f;
  p = p * square + 2.000378032e-1f;
  p = p * square + 3.333332017e-1f;
  return twice + twice * (square * p);
}

// Returns tanh(x) within 2 ulp. Uses an odd polynomial for |x| < 0.625: a Chebyshev fit in x^2 of
// degree 4 (relative error below 2e-8). Uses 1 - 2 / (1 + e^(2|x|)) for larger |x|.
REPRISE_INLINE float vector_tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x, square = x * x;
  float p = -6.096714163e-3f;
  p = p * square + 2.099717900e-2f;
  p = p * square - 5.385090958e-2f;
  p = p * square + 1.333276974e-1f;
  p = p * square - 3.333332894e-1f;
  const float beyond = 1.0f - 2.0f / vector_one_plus_exp(2.0f * magnitude);
  const float outer = x < 0.0f ? -beyond : beyond;
  return magnitude < 0.625f ? x + x * (square * p) : outer;
}

// Returns the lower tail P(Z < -a) for a standard normal Z and a >= 0, given e^(-a^2/2). Relative
// error about 1e-7. P = e^(-a^2/2) t q(t) with t = 1 / (1 + 0.3 a), q a Chebyshev fit of degree 9
// on a in [0, 13.5].
REPRISE_INLINE float normal_tail(float a, float exp_minus_half_square) {
  const float t = 1.0f / (1.0f + 0.3f * a);
  float q = -0.020857548450199978f;
  q = q * t + 0.11373804778225749f;
  q = q * t - 0.2313456704658912f;
  q = q * t + 0.1960452425115637f;
  q = q * t - 0.08302591111698822f;
  q = q * t + 0.09811377097182593f;
  q = q * t + 0.07770884966592413f;
  q = q * t + 0.11038123240567055f;
  q = q * t + 0.11955441549900653f;
  q = q * t + 0.11968756945351995f;
  return exp_minus_half_square * (t * q);
}

constexpr uint32_t kSumLanes = 16;  // lanes of a row sum, whatever the vector's width

// Sums sixteen lanes as a balanced tree.
REPRISE_INLINE float sum_lanes(const float* lanes) {
  float half[kSumLanes / 2];
  for (uint32_t i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (uint32_t i = 0; i < 4; ++i) half[i] += half[i + 4];
  return (half[0] + half[2]) + (half[1] + half[3]);
}

// Returns the largest element of x[C], compared in kSumLanes lanes. Ignores NaN: the caller's sum
// of exponentials becomes NaN anyway.
template <typename Stored>
REPRISE_INLINE float largest_of(const Stored* x, uint32_t C) {
  float lanes[kSumLanes];
  for (uint32_t k = 0; k < kSumLanes; ++k) lanes[k] = -__builtin_inff();
  uint32_t c = 0;
  for (; c + kSumLanes <= C; c += kSumLanes) {
    for (uint32_t k = 0; k < kSumLanes; ++k) {
      const float z = x[c + k];
      lanes[k] = z > lanes[k] ? z : lanes[k];
    }
  }
  for (uint32_t k = 0; c + k < C; ++k) {
    const float z = x[c + k];
    lanes[k] = z > lanes[k] ? z : lanes[k];
  }
  for (uint32_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (uint32_t k = 0; k < width; ++k) lanes[k] = lanes[k + width] > lanes[k] ? lanes[k + width] : lanes[k];
  }
  return lanes[0];
}

// Returns the sum of a[i] b[i] over all i < count, computed in kSumLanes lanes.
template <typename A, typename B>
REPRISE_INLINE float sum_of_products(const A* a, const B* b, uint32_t count) {
  typename VectorOf<kSumLanes>::type sum = {}, x, y;  // a vector type: lanes in an array would be added one by one
  uint32_t first = 0;
  for (; first + kSumLanes <= count; first += kSumLanes) {
    read_vector<kSumLanes>(x, a + first);
    read_vector<kSumLanes>(y, b + first);
    sum += x * y;
  }
  float lanes[kSumLanes];
  write_vector<kSumLanes>(lanes, sum);
  for (uint32_t i = 0; first + i < count; ++i) lanes[i] += float{a[first + i]} * float{b[first + i]};
  return sum_lanes(lanes);
}

}  // namespace reprise
