// Scratch and stack of products of two activations. Planner, checker and kernel share these
// definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {

// Number of runs into which B matrices are split. A run is a range of matrices, which one worker
// computes in order with a packed block of its own. If B is less than kProductRuns, there is only
// one run, and each product is split over the workers. The number of runs follows from the shape
// alone.
constexpr uint64_t kProductRuns = 16;
constexpr uint64_t product_runs(uint64_t B) { return B < kProductRuns ? 1 : kProductRuns; }
constexpr uint64_t product_run_bytes(uint64_t N, uint64_t K, DType stored, CpuSize size) {
  return gemm_scratch_bytes(N, K, stored, size);
}

template <CpuSize kSize>
constexpr void add_product_rules(BackendRules& rules) {
  using A = ProductForward;
  rules.of<A>().scratch_bytes = [](const ShapedCall& c) {
    const contract::ProductSizes s = contract::product_sizes(c[A::kC], c[A::kA], c.attribute<ProductAttribute>());
    return product_runs(s.B) * product_run_bytes(s.N, s.K, c[A::kC].dtype, kSize);
  };
  rules.of<A>().stack_bytes = [](const ShapedCall& c) {
    const contract::ProductSizes s = contract::product_sizes(c[A::kC], c[A::kA], c.attribute<ProductAttribute>());
    const DType stored = c[A::kC].dtype;
    return product_stack_bytes(s.N, s.K, {.output = stored, .lines = stored != DType::kF32}, kSize);
  };
}

}  // namespace reprise
