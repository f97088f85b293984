// How a card multiplies matrices of f32: in f32 itself, or on tensor cores with fewer bits. A
// recipe selects it as "math". The math decides the bits and the tile of a product. So the
// backend's name contains the math, as it contains the size of card (card_size.h).
#pragma once

#include "lib/weight_format.h"

namespace reprise {

// The arithmetic of a product of f32. The sums are f32 in all cases.
enum class ProductMath : uint8_t {
  kF32,     // fmaf
  kTf32,    // both operands rounded to tf32: 11 significant bits
  kBf16x3,  // each operand split into two bf16, high + low; sums all products except low times low: about 16 bits
};

// True if a product that does not use the tensor cores of bf16 can read weights as they are stored.
// If false, the weights are first decoded to the activations' type. The tile of f32 reads each
// element separately; tensor cores read f32 in chunks (chunk_source.h).
constexpr bool reads_weights(DType weights, DType stored, ProductMath math) {
  return stored == DType::kF32 && math != ProductMath::kF32 ? weights == DType::kF32
                                                            : takes_weights(kPlainWeights, weights);
}

}  // namespace reprise
