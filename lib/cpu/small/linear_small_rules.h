// Scratch of linear layers on a small core, by shape alone (linear_small.cpp).
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm/gemm_scratch.h"
#include "lib/cpu/small/conv_small_rules.h"

namespace reprise {

// Returns the floats of scratch for a product of rows and weights, `depth` deep: [ three rows as
// f32, if they are stored otherwise | panels of weights ].
constexpr uint64_t small_linear_floats(uint64_t depth, uint64_t outputs, DType stored) {
  return (stored == DType::kF32 ? 0 : small_columns(kSmallLines * depth)) +
         depth * kSmallColumns * small_panels(depth, outputs);
}
// Rows of x and dy that a weight's gradient converts to f32 at a time. Its scratch, for eight
// columns of dw = a^T b (add_gradient() in small_products.h):
//   [ sums: all lines x 8 columns | b: these rows x 8 columns | a: these rows x 3 lines ]
constexpr uint32_t kSmallRowsOfGradient = 64;
constexpr uint64_t small_linear_gradient_floats(uint64_t lines) {
  return (divide_up(lines, kSmallLines) * kSmallLines + kSmallRowsOfGradient) * kSmallColumns +
         kSmallRowsOfGradient * kSmallLines;
}

constexpr void add_small_linear_rules(BackendRules& rules) {
  rules.of<LinearForward>() = {true, [](const ShapedCall& c) {
    using A = LinearForward;
    const uint64_t rank = c.has(A::kH) ? c[A::kH].last_dimension() : 0;
    return align_up(4 *
                    small_linear_floats(c[A::kX].last_dimension() + rank, c[A::kY].last_dimension(), c[A::kY].dtype));
  }};
  rules.of<LinearBackwardData>() = {true, [](const ShapedCall& c) {
    using A = LinearBackwardData;
    return align_up(4 * small_linear_floats(c[A::kDy].last_dimension(), c[A::kDx].last_dimension(), c[A::kDx].dtype));
  }};
  rules.of<LinearBackwardWeight>() = {true, [](const ShapedCall& c) {
    return align_up(4 * small_linear_gradient_floats(c[LinearBackwardWeight::kDw].shape[0]));
  }};
  rules.of<LinearBackwardBias>() = {true, [](const ShapedCall& c) {
    return column_sums_scratch_bytes(c[LinearBackwardBias::kDb].last_dimension());
  }};
}

}  // namespace reprise
