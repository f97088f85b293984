// A sum of squares of f32 that has equal bits at every vector level. It consists of sixteen partial
// sums in double, in which the square of a float is exact. The gradients' norm, the optimizers'
// updates and DoRA's norms share this order of summation.
#pragma once

#include <cstdint>

#include "lib/cpu/vector_level.h"

namespace reprise {

// Sixteen partial sums. add() adds the square of x[i] to sums[i % kCount]. total() adds the sums as
// a balanced tree and overwrites them, so call it once.
struct SquareSums {
  static constexpr uint32_t kCount = 16;
  double sums[kCount] = {};

  REPRISE_INLINE void add(const float* x, uint64_t n) {
    uint64_t i = 0;
    for (; i + kCount <= n; i += kCount) {
      for (uint32_t k = 0; k < kCount; ++k) sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
    }
    for (uint32_t k = 0; i + k < n; ++k) sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  }
  REPRISE_INLINE double total() {
    for (uint32_t width = kCount / 2; width > 0; width /= 2) {
      for (uint32_t k = 0; k < width; ++k) sums[k] += sums[k + width];
    }
    return sums[0];
  }
};

}  // namespace reprise
