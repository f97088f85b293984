// exp, tanh, the normal distribution and a fixed-order sum, as straight-line code that a compiler turns into vectors.
// Here because the C library's functions do not vectorise without fast-math, and their bits change with its version.
#pragma once

#include <bit>
#include <cstdint>

#include "lib/cpu/vector_level.h"
#include "lib/cpu/vector_of.h"

namespace reprise {

// e^x = 2^n (1 + above) within 1 ulp, 2^n still to be multiplied in: n is what shifted's bits are above those of kExpRound.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 p(r), p a Chebyshev fit of degree 4 (error below 1e-8).
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

// e^x within 1 ulp. Above 88.72 infinity; below -87.33, where the result would be denormal, 0; NaN stays NaN.
REPRISE_INLINE float vector_exp(float x) {
  const ExpParts e = exp_parts(x > 89.0f ? 89.0f : (x < -88.0f ? -88.0f : x));
  // 2^n in two factors, since n reaches 128.
  const uint32_t n = std::bit_cast<uint32_t>(e.shifted) - std::bit_cast<uint32_t>(kExpRound) + 256u;
  const uint32_t half = n >> 1, rest = n - half;
  const float scaled = (1.0f + e.above) * std::bit_cast<float>((half - 1u) << 23) * std::bit_cast<float>((rest - 1u) << 23);
  return x < -87.33f ? 0.0f : scaled;
}

// The same bits for x of at most 88, in two thirds of the instructions: n goes straight to the exponent, into which the bits of kExpRound do not reach.
REPRISE_INLINE float vector_exp_at_most_88(float x) {
  const ExpParts e = exp_parts(x < -88.0f ? -88.0f : x);
  const float power = 1.0f + e.above;
  const float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(power) + (std::bit_cast<uint32_t>(e.shifted) << 23));
  return x >= -87.33f ? scaled : power - power;  // 0 or NaN
}

// The same bits for x from -87.33 to kLastExp, in half of the instructions; elsewhere it is anything. Whoever bounds x writes a condition,
// through which no compiler fuses the product that x may be.
constexpr float kLastExp = 0x1.62e42ep+6f;  // of what is above, e^x is infinite
REPRISE_INLINE float exp_in_range(float x) {
  const ExpParts e = exp_parts(x);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(1.0f + e.above) + (std::bit_cast<uint32_t>(e.shifted) << 23));
}

// 1 + e^x, the bits of 1 + vector_exp(x): below -87 e^x does not show. NaN stays NaN.
REPRISE_INLINE float vector_one_plus_exp(float x) {
  const float e = exp_in_range(x < -87.0f ? -87.0f : x);
  return 1.0f + (x <= kLastExp ? e : x + __builtin_inff());
}

// e^x - 1 for x of at most 0, within 2 ulp; NaN stays NaN. The difference 2^n - 1 is taken apart from what e^r is above 1, which cancels nothing.
REPRISE_INLINE float vector_exp_minus_one(float x) {
  const ExpParts e = exp_parts(x < -88.0f ? -88.0f : x);
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(e.shifted) - std::bit_cast<uint32_t>(kExpRound) + 127u) << 23);  // 2^n
  return power * e.above + (power - 1.0f);
}

// log(1 + e) for e in [0, 1] within 2 ulp: 2 artanh s = 2s + 2s s^2 p(s^2), s = e / (2 + e), p a Chebyshev fit of degree 3 (error below 2e-8).
REPRISE_INLINE float vector_log_one_plus(float e) {
  const float s = e / (2.0f + e), square = s * s, twice = s + s;
  float p = 1.342574901e-1f;
  p = p * square + 1.411830990e-1f;
  p = p * square + 2.000378032e-1f;
  p = p * square + 3.333332017e-1f;
  return twice + twice * (square * p);
}

// tanh(x) within 2 ulp. Up to 0.625 an odd polynomial, a Chebyshev fit in x^2 of degree 4 (relative error below 2e-8); beyond by e^2x.
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

// The lower tail at a magnitude: P(Z < -a) for a standard normal Z and a >= 0, given e^(-a^2/2). Relative error about
// 1e-7. P = e^(-a^2/2) t q(t) with t = 1 / (1 + 0.3 a), q a Chebyshev fit of degree 9 on a in [0, 13.5].
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

constexpr uint32_t kSumLanes = 16;  // of a row sum, whatever the vector's width

// Sixteen lanes as a balanced tree.
REPRISE_INLINE float sum_lanes(const float* lanes) {
  float half[kSumLanes / 2];
  for (uint32_t i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (uint32_t i = 0; i < 4; ++i) half[i] += half[i + 4];
  return (half[0] + half[2]) + (half[1] + half[3]);
}

// The largest of a row, by these lanes. NaN counts for nothing here; its exponential makes a sum NaN.
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

// The sum of a[i] b[i] by these lanes.
template <typename A, typename B>
REPRISE_INLINE float sum_of_products(const A* a, const B* b, uint32_t count) {
  typename VectorOf<kSumLanes>::type sum = {}, x, y;  // an array of lanes would be worked one by one
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
