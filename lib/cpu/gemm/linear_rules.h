// Scratch and stack of the kernels of linear layers. Forward, backward by data and backward by
// weight are one matrix product each; the gradient of the bias is column sums. gemm_scratch.h has
// the bytes of a product, which follow from the blocks of cpu_size.h. check_resources in
// lib/check_row.h proves that a plan provides these bytes, and a kernel refuses fewer.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {

namespace rules {
// Returns which buffers of a product are on the stack. Lines of activations or weights that are not
// f32 are widened there.
template <typename A>
constexpr ProductStack linear_stack(const ShapedCall& c, uint32_t output) {
  const DType stored = c[output].dtype;
  return {.output = stored, .lines = stored != DType::kF32 || c[A::kW].dtype != DType::kF32};
}
}  // namespace rules

constexpr void add_linear_rules(BackendRules& rules) {
  rules.of<LinearForward>().scratch_bytes = [](const ShapedCall& c) {
    using A = LinearForward;
    const uint64_t rank = c.has(A::kH) ? c[A::kH].last_dimension() : 0;
    return gemm_scratch_bytes(c[A::kY].last_dimension(), c[A::kX].last_dimension() + rank, c[A::kY].dtype);
  };
  rules.of<LinearBackwardData>().scratch_bytes = [](const ShapedCall& c) {
    using A = LinearBackwardData;
    return gemm_scratch_bytes(c[A::kDx].last_dimension(), c[A::kDy].last_dimension(), c[A::kDx].dtype);
  };
  rules.of<LinearBackwardWeight>().scratch_bytes = [](const ShapedCall& c) {
    using A = LinearBackwardWeight;
    return gemm_split_scratch_bytes(c[A::kDw].shape[0], c[A::kDw].last_dimension(), c[A::kX].leading_elements());
  };
  rules.of<LinearForward>().stack_bytes = [](const ShapedCall& c) {
    using A = LinearForward;
    const uint64_t rank = c.has(A::kH) ? c[A::kH].last_dimension() : 0;
    ProductStack stack = rules::linear_stack<A>(c, A::kY);
    stack.lines = stack.lines || (c.has(A::kU) && c[A::kU].dtype != DType::kF32);
    return product_stack_bytes(c[A::kY].last_dimension(), c[A::kX].last_dimension() + rank, stack);
  };
  rules.of<LinearBackwardData>().stack_bytes = [](const ShapedCall& c) {
    using A = LinearBackwardData;
    return product_stack_bytes(c[A::kDx].last_dimension(), c[A::kDy].last_dimension(),
                               rules::linear_stack<A>(c, A::kDx));
  };
  rules.of<LinearBackwardWeight>().stack_bytes = [](const ShapedCall& c) {
    using A = LinearBackwardWeight;
    const Tensor& x = c[A::kX];
    return product_stack_bytes(c[A::kDw].last_dimension(), x.leading_elements(), {.lines = x.dtype != DType::kF32});
  };
  rules.of<LinearForward>().weights = rules.of<LinearBackwardData>().weights = kEveryWeight;
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) {
    return column_sums_scratch_bytes(c[LinearBackwardBias::kDb].last_dimension());
  };
}

}  // namespace reprise
