// What a card multiplies in the place of an f32, by the math of its table (cuda/product_math.h), written from the formats' definitions.
// Here so that the reference gets operands as tensor cores see them, and its tolerance stays that of sums in f32.
#pragma once

#include <cmath>

#include "cuda/product_math.h"
#include "lib/bf16.h"

namespace reprise::test {

// The nearest number of so many significant bits; a tie goes away from zero.
inline double with_significant_bits(double x, int bits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, bits)), exponent - bits);
}

inline double as_multiplied(ProductMath math, double x) {
  const auto bf16 = [](double value) -> double { return float{Bf16(static_cast<float>(value))}; };
  switch (math) {
    case ProductMath::kTf32: return with_significant_bits(x, 11);
    case ProductMath::kBf16x3: return bf16(x) + bf16(x - bf16(x));
    default: return x;
  }
}

// How far that is from the operand at most, of itself.
constexpr double operand_rounding(ProductMath math) {
  return math == ProductMath::kTf32 ? 0x1p-11 : math == ProductMath::kBf16x3 ? 0x1p-16 : 0;
}

// What is left out of a product of two operands, of the product itself: low times low, each at most 2^-8 of its operand.
constexpr double left_out(ProductMath math) { return math == ProductMath::kBf16x3 ? 0x1p-16 : 0; }

}  // namespace reprise::test
