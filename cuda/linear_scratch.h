// Scratch of linear layers: the parts of a weight's gradient, and the chunks of a bias's.
#pragma once

#include "cuda/product_shape.h"
#include "lib/backend_rules.h"

namespace reprise {

// dw as a product: [K,C], or [C,K] when input_major.
constexpr ProductShape linear_weight_product(uint64_t M, uint64_t C, uint64_t K, bool input_major) {
  return input_major ? ProductShape{C, K, M} : ProductShape{K, C, M};
}

constexpr void add_cuda_linear_rules(BackendRules& rules) {
  rules.have(LinearKernels{});
  rules.of<LinearBackwardWeight>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardWeight;
    const bool input_major = c.attribute<LinearAttribute>().input_major != 0;
    return split_scratch_bytes(
        linear_weight_product(c[A::kX].leading_elements(), c[A::kX].last_dimension(), c[A::kDy].last_dimension(), input_major));
  };
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardBias;
    return split_rows_of_columns(c[A::kDy].leading_elements()).count * uint64_t{c[A::kDb].last_dimension()} * sizeof(float);
  };
}

}  // namespace reprise
