// The values that a card multiplies in place of f32 operands, for each math of its table
// (cuda/gemm/product_math.h). They are computed from the definitions of the formats. The reference
// multiplies the same values, so that only the tolerance of f32 sums remains.
#pragma once

#include <cmath>

#include "cuda/gemm/product_math.h"
#include "lib/bf16.h"

namespace reprise::test {

// Returns the nearest number with `bits` significant bits. Ties are rounded away from zero.
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

// Returns the largest relative error with which `math` represents an operand.
constexpr double operand_rounding(ProductMath math) {
  return math == ProductMath::kTf32 ? 0x1p-11 : math == ProductMath::kBf16x3 ? 0x1p-16 : 0;
}

// Returns the largest relative error of a product of two operands that `math` causes by omitting
// terms. kBf16x3 splits each operand into a high and a low part, and omits the product of the low
// parts. Each low part is at most 2^-8 of its operand.
constexpr double left_out(ProductMath math) { return math == ProductMath::kBf16x3 ? 0x1p-16 : 0; }

}  // namespace reprise::test
