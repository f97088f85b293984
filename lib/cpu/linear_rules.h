// Scratch and stack of linear layers: one matrix product each, and the sums of columns for a bias.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm_scratch.h"

namespace reprise {

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
  rules.of<LinearForward>().weights = rules.of<LinearBackwardData>().weights = kEveryWeight;
  rules.of<LinearForward>().stack_bytes = [](const ShapedCall& c) { return product_stack_bytes(c[LinearForward::kY].dtype); };
  rules.of<LinearBackwardData>().stack_bytes = [](const ShapedCall& c) { return product_stack_bytes(c[LinearBackwardData::kDx].dtype); };
  rules.of<LinearBackwardWeight>().stack_bytes = [](const ShapedCall&) { return product_stack_bytes(DType::kF32); };
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) {
    return column_sums_scratch_bytes(c[LinearBackwardBias::kDb].last_dimension());
  };
}

}  // namespace reprise
