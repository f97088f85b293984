// Scratch of linear layers: weights in the type and layout that the products read, and the partial
// sums of the gradients of weight and bias. Also selects the layers that run on tensor cores.
#pragma once

#include "cuda/gemm/product_shape.h"
#include "lib/backend_rules.h"

namespace reprise {

// Returns the shape of dw as a product: [K,C], or [C,K] if input_major.
constexpr ProductShape linear_weight_product(uint64_t M, uint64_t C, uint64_t K, bool input_major) {
  return input_major ? ProductShape{C, K, M} : ProductShape{K, C, M};
}

// True if tensor cores multiply bf16. This requires that all rows of x, dy and w are whole chunks.
constexpr bool linear_uses_mma(DType stored, uint64_t C, uint64_t K) {
  return stored == DType::kBf16 && are_chunks(C) && are_chunks(K);
}

constexpr TileSides linear_weight_tile(const ProductShape& s, DType stored, ProductMath math, CardSize card) {
  if (linear_uses_mma(stored, s.rows, s.columns)) return mma_tile(s);
  const bool in_chunks = stored == DType::kF32 && are_chunks(s.rows, stored) && are_chunks(s.columns, stored);
  return in_chunks ? chunk_tile(s, math, card) : simt_tile(s, card);
}

// True if tensor cores compute the forward. R is the rank of the adapter; 0 if there is none. An
// adapter is additional depth of the same product. Then `scale` must be 1, because it would also
// multiply the adapter.
constexpr bool linear_forward_uses_mma(DType stored, uint64_t C, uint64_t K, uint64_t R, float scale) {
  return linear_uses_mma(stored, C, K) && (R == 0 || (are_chunks(R) && scale == 1));
}

// True if one product on tensor cores computes a layer of f32 operands together with its adapter.
constexpr bool linear_joins_f32(DType stored, ProductMath math, uint64_t C, uint64_t K, uint64_t R, float scale) {
  return stored == DType::kF32 && math != ProductMath::kF32 && are_chunks(C, stored) && are_chunks(K, stored) &&
         are_chunks(R, stored) && scale == 1;
}

// Returns the bytes of a decoded copy of n weights, for products without the tensor cores of bf16.
// Returns 0 if the product reads the weights as they are stored.
constexpr uint64_t plain_weights_bytes(DType weights, DType stored, ProductMath math, uint64_t n) {
  return reads_weights(weights, stored, math) ? 0 : align_up(stored_bytes(stored, n));
}
// Returns the bytes of a copy of n weights in bf16; 0 if they are stored as bf16.
constexpr uint64_t rounded_weights_bytes(DType weights, uint64_t n) {
  return weights == DType::kBf16 ? 0 : align_up(stored_bytes(DType::kBf16, n));
}
// Returns the bytes of a copy of u[K,R] in bf16, in the layout of w. `n` is the number of elements
// of u, and `weights` is their type. Returns 0 if u can be read in place: it is bf16, and w is not
// input-major.
constexpr uint64_t laid_up_bytes(DType weights, uint64_t n, bool input_major) {
  return input_major ? align_up(stored_bytes(DType::kBf16, n)) : rounded_weights_bytes(weights, n);
}

template <CardSize kCard, ProductMath kMath>
constexpr void add_cuda_linear_rules(BackendRules& rules) {
  rules.have(LinearKernels{});
  rules.of<LinearForward>().weights = rules.of<LinearBackwardData>().weights = kEveryWeight;
  rules.of<LinearForward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearForward;
    const LinearAttribute& linear = c.attribute<LinearAttribute>();
    const uint64_t C = c[A::kX].last_dimension(), K = c[A::kY].last_dimension(),
                   R = c.has(A::kH) ? c[A::kH].last_dimension() : 0;
    if (!linear_forward_uses_mma(c[A::kX].dtype, C, K, R, linear.scale)) {
      const DType stored = c[A::kX].dtype;
      const uint64_t of_w = plain_weights_bytes(c[A::kW].dtype, stored, kMath, C * K);
      if (R == 0) return of_w;
      const bool is_transposed = linear.input_major != 0 && linear_joins_f32(stored, kMath, C, K, R, linear.scale);
      return of_w + (is_transposed ? align_up(stored_bytes(stored, R * K))
                               : plain_weights_bytes(c[A::kU].dtype, stored, kMath, R * K));
    }
    return rounded_weights_bytes(c[A::kW].dtype, C * K) +
           (R == 0 ? 0 : laid_up_bytes(c[A::kU].dtype, R * K, linear.input_major != 0));
  };
  rules.of<LinearBackwardData>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardData;
    const uint64_t C = c[A::kDx].last_dimension(), K = c[A::kDy].last_dimension();
    return linear_uses_mma(c[A::kDy].dtype, C, K) ? rounded_weights_bytes(c[A::kW].dtype, C * K)
                                                  : plain_weights_bytes(c[A::kW].dtype, c[A::kDy].dtype, kMath, C * K);
  };
  rules.of<LinearBackwardWeight>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardWeight;
    const bool input_major = c.attribute<LinearAttribute>().input_major != 0;
    const ProductShape shape = linear_weight_product(c[A::kX].leading_elements(), c[A::kX].last_dimension(),
                                                     c[A::kDy].last_dimension(), input_major);
    return split_scratch_bytes(shape, linear_weight_tile(shape, c[A::kX].dtype, kMath, kCard), kCard);
  };
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LinearBackwardBias;
    return split_rows_of_columns(c[A::kDy].leading_elements()).count * uint64_t{c[A::kDb].last_dimension()} *
           sizeof(float);
  };
}

}  // namespace reprise
