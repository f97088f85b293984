// Operands of a small core's products: packs weights into panels of eight outputs, and stores sums.
// Shared by convolutions and linear layers.
#pragma once

#include <cstring>
#include <type_traits>

#include "lib/bf16.h"
#include "lib/cpu/small/small_tile.h"
#include "lib/weight_format.h"

namespace reprise {

// A matrix of weights, f32 or bf16. Element (output, depth) is at first + output * of_output +
// depth * of_depth.
struct SmallWeights {
  Weight w;
  ptrdiff_t first, of_output, of_depth;
};

namespace small {
template <typename Stored>
void pack(float* panel, const Stored* w, const SmallWeights& weights, uint32_t outputs, uint32_t depths, float factor) {
  const ptrdiff_t of_depth = weights.of_depth;
  for (uint32_t j = 0; j < kSmallColumns; ++j) {
    float* to = panel + j;
    const Stored* from = w + weights.first + static_cast<ptrdiff_t>(j) * weights.of_output;
    if (j >= outputs) {
      for (uint32_t left = depths; left > 0; --left, to += kSmallColumns) *to = 0.0f;
    } else {
      for (uint32_t left = depths; left > 0; --left, to += kSmallColumns, from += of_depth)
        *to = factor * static_cast<float>(*from);
    }
  }
}
}  // namespace small

// Packs panel[d * kSmallColumns + j] = factor * weight (j, d); writes zeros for j >= outputs.
inline void pack_small_panel(float* panel, const SmallWeights& weights, uint32_t outputs, uint32_t depths,
                             float factor = 1.0f) {
  if (weights.w.type == DType::kF32) return small::pack(panel, weights.w.f32(), weights, outputs, depths, factor);
  small::pack(panel, weights.w.bf16(), weights, outputs, depths, factor);
}

// The destination of a tile's sums: line i, column j goes to data[i * line + j]. Adds bias[j]
// unless `bias` is null, and the old value if `accumulate`. put() overwrites the sums.
template <typename Stored>
struct SmallOutput {
  Stored* data;
  ptrdiff_t line;
  const float* bias;
  bool accumulate;

  void put(float* sums, uint32_t lines, uint32_t columns) const {
    Stored* to = data;
    for (; lines > 0; --lines, to += line, sums += kSmallColumns) {
      if (bias != nullptr) add(sums, bias, columns);
      if (accumulate) add(sums, to, columns);
      if (kStoredAs<Stored> == DType::kF32 && columns == kSmallColumns) {
        std::memcpy(to, sums, kSmallColumns * sizeof(float));
      } else {
        for (uint32_t j = 0; j < columns; ++j) to[j] = sums[j];
      }
    }
  }

 private:
  template <typename Term>
  static void add(float* sums, const Term* terms, uint32_t columns) {
    if constexpr (std::is_same_v<Term, float>) {
      if (columns == kSmallColumns) return add_columns(sums, terms);
    }
    for (uint32_t j = 0; j < columns; ++j) sums[j] += static_cast<float>(terms[j]);
  }
};

}  // namespace reprise
