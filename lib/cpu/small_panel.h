// Operands of a small core's products: weights packed into panels of eight outputs, and sums put where they belong.
// Here because convolutions and linear layers pack and store alike.
#pragma once

#include "lib/bf16.h"
#include "lib/cpu/small_tile.h"
#include "lib/weight_format.h"

namespace reprise {

// Elements of a matrix of weights, f32 or bf16: (output, depth) at first + output * of_output + depth * of_depth.
struct SmallWeights {
  Weight w;
  ptrdiff_t first, of_output, of_depth;
};

namespace small {
template <typename Stored>
void pack(float* panel, const Stored* w, const SmallWeights& weights, uint32_t outputs, uint32_t depths, float factor) {
  for (uint32_t j = 0; j < kSmallColumns; ++j) {
    const Stored* from = w + weights.first + static_cast<ptrdiff_t>(j) * weights.of_output;
    for (uint32_t d = 0; d < depths; ++d) {
      panel[d * kSmallColumns + j] = j < outputs ? factor * static_cast<float>(from[static_cast<ptrdiff_t>(d) * weights.of_depth]) : 0.0f;
    }
  }
}
}  // namespace small

// panel[d * kSmallColumns + j] = factor * weight (j, d), zero from `outputs` on.
inline void pack_small_panel(float* panel, const SmallWeights& weights, uint32_t outputs, uint32_t depths, float factor = 1.0f) {
  if (weights.w.type == DType::kF32) return small::pack(panel, weights.w.f32(), weights, outputs, depths, factor);
  small::pack(panel, weights.w.bf16(), weights, outputs, depths, factor);
}

// Where a tile's sums go: line i, column j to data[i * line + j], with the columns' bias where there is one, added to what is there where asked.
template <typename Stored>
struct SmallOutput {
  Stored* data;
  ptrdiff_t line;
  const float* bias;
  bool accumulate;

  void put(const float* sums, uint32_t lines, uint32_t columns) const {
    for (uint32_t i = 0; i < lines; ++i) {
      Stored* to = data + static_cast<ptrdiff_t>(i) * line;
      for (uint32_t j = 0; j < columns; ++j) {
        float value = sums[i * kSmallColumns + j];
        if (bias != nullptr) value = value + bias[j];
        to[j] = accumulate ? static_cast<float>(to[j]) + value : value;
      }
    }
  }
};

}  // namespace reprise
