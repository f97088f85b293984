// How a card multiplies matrices of f32: by f32 itself, or on tensor cores by fewer bits. A recipe's "math".
// Here because it decides bits, and which tile a product takes: so it must follow the backend's name, as the size of card does (card_size.h).
#pragma once

#include "lib/weight_format.h"

namespace reprise {

// Sums are f32 in all of them.
enum class ProductMath : uint8_t {
  kF32,     // fmaf
  kTf32,    // both operands rounded to tf32: 11 significant bits
  kBf16x3,  // both operands cut in two bf16, high + low: all products of these but low times low, about 16 bits
};

// Whether a product without bf16's tensor cores reads weights as they lie, or has them decoded first, as activations are stored. By f32 each element is
// read for itself; on tensor cores f32 comes in chunks (chunk_source.h).
constexpr bool reads_weights(DType weights, DType stored, ProductMath math) {
  return stored == DType::kF32 && math != ProductMath::kF32 ? weights == DType::kF32 : takes_weights(kPlainWeights, weights);
}

}  // namespace reprise
