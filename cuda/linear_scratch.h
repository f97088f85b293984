// Scratch of linear layers: the parts of a weight's gradient, and the chunks of a bias's.
#pragma once

#include "cuda/product_shape.h"
#include "lib/backend_rules.h"

namespace reprise {

// dw as a product: [K,C], or [C,K] when input_major.
constexpr ProductShape linear_weight_product(uint64_t M, uint64_t C, uint64_t K, bool input_major) {
  return input_major ? ProductShape{C, K, M} : ProductShape{K, C, M};
}

// Whether tensor cores multiply: all rows of x, dy and w are then whole chunks.
constexpr bool linear_uses_mma(DType stored, uint64_t C, uint64_t K) { return stored == DType::kBf16 && are_chunks(C) && are_chunks(K); }

constexpr TileSides linear_weight_tile(const ProductShape& s, DType stored, CardSize card) {
  return linear_uses_mma(stored, s.rows, s.columns) ? mma_tile(s) : simt_tile(s, card);
}

// Weights that are rounded first.
constexpr uint64_t linear_weights_scratch_bytes(DType stored, DType weights, uint64_t C, uint64_t K) {
  return linear_uses_mma(stored, C, K) && weights == DType::kF32 ? align_up(stored_bytes(DType::kBf16, C * K)) : 0;
}

template <CardSize kCard>
constexpr void add_cuda_linear_rules(BackendRules& rules) {
  rules.have(LinearKernels{});
  rules.of<LinearForward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearForward;
    return linear_weights_scratch_bytes(c[A::kX].dtype, c[A::kW].dtype, c[A::kX].last_dimension(), c[A::kY].last_dimension());
  };
  rules.of<LinearBackwardData>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardData;
    return linear_weights_scratch_bytes(c[A::kDy].dtype, c[A::kW].dtype, c[A::kDx].last_dimension(), c[A::kDy].last_dimension());
  };
  rules.of<LinearBackwardWeight>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardWeight;
    const bool input_major = c.attribute<LinearAttribute>().input_major != 0;
    const ProductShape shape =
        linear_weight_product(c[A::kX].leading_elements(), c[A::kX].last_dimension(), c[A::kDy].last_dimension(), input_major);
    return split_scratch_bytes(shape, linear_weight_tile(shape, c[A::kX].dtype, kCard), kCard);
  };
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardBias;
    return split_rows_of_columns(c[A::kDy].leading_elements()).count * uint64_t{c[A::kDb].last_dimension()} * sizeof(float);
  };
}

}  // namespace reprise
