// Products of two activations, matrix by matrix: for an attention that the attention kernels do not
// support, its scores and its weighted sums of values. One kernel computes the forward and both
// gradients, because the gradient of a factor is a product of the other factor and dc.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// c[i] (+)= a[i] b[i] for each of B pairs of matrices.
template <typename Stored>
struct ProductArgsOf {
  Stored* c;        // [B,M,N]
  const Stored* a;  // [B,M,K], or [B,K,M] if transposed_a
  const Stored* b;  // [B,K,N], or [B,N,K] if transposed_b
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t B;
  uint32_t M, N, K;
  // `transposed_a`, `transposed_b`: the factor is stored transposed. `accumulate_c`: the product is
  // added to c.
  bool transposed_a, transposed_b, accumulate_c;
};

namespace contract {
// The sizes of a call: B products [M,N], with K terms in each sum.
struct ProductSizes {
  uint64_t B;
  uint32_t M, N, K;
};
// Returns the last dimension of `t` if `last` is true, else the dimension before it.
constexpr uint32_t side(const Tensor& t, bool last) { return t.shape[t.rank - (last ? 1 : 2)]; }
// Returns the sizes of a call that product_fault() accepts.
constexpr ProductSizes product_sizes(const Tensor& c, const Tensor& a, const ProductAttribute& how) {
  const uint32_t M = side(c, false), N = side(c, true);
  return {M == 0 || N == 0 ? 0 : c.elements() / M / N, M, N, side(a, how.transposed_a == 0)};
}
// True if x and y have equal ranks, and equal dimensions before the last two.
constexpr bool same_matrices(const Tensor& x, const Tensor& y) {
  for (uint32_t d = 0; d + 2 < x.rank; ++d) {
    if (x.shape[d] != y.shape[d]) return false;
  }
  return x.rank == y.rank;
}
// Returns the fault of the shapes.
constexpr Fault product_fault(const Tensor& c, const Tensor& a, const Tensor& b, const ProductAttribute& how) {
  if (c.rank < 2 || !same_matrices(a, c) || !same_matrices(b, c)) return Fault::kShape;
  const bool transposed_a = how.transposed_a != 0, transposed_b = how.transposed_b != 0;
  return shape::require(side(a, transposed_a) == side(c, false) && side(b, !transposed_b) == side(c, true) &&
                        side(a, !transposed_a) == side(b, transposed_b));
}
}  // namespace contract

struct ProductForward {
  enum : uint32_t { kC, kA, kB, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::product_fault(c[kC], c[kA], c[kB], c.attribute<ProductAttribute>());
  }
  static constexpr const char* kSynopsis = "c = a b, of which attribute.turned_a and attribute.turned_b turn a and b";
  static constexpr KernelInfo kInfo = {.op = Op::kProduct,
                                       .pass = Pass::kForward,
                                       .name = "product.forward",
                                       .attribute = kAttributeKind<ProductAttribute>,
                                       .arguments = {contract::act_sum("c[B,M,N]"), contract::act_in("a[B,M,K]"),
                                                     contract::act_in("b[B,K,N]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ProductArgsOf<Stored> arguments(const RowCall& c) {
    const ProductAttribute& how = c.attribute<ProductAttribute>();
    const contract::ProductSizes sizes = contract::product_sizes(c[kC], c[kA], how);
    return {.c = c.pointer<Stored>(kC),
            .a = c.pointer<Stored>(kA),
            .b = c.pointer<Stored>(kB),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .B = sizes.B,
            .M = sizes.M,
            .N = sizes.N,
            .K = sizes.K,
            .transposed_a = how.transposed_a != 0,
            .transposed_b = how.transposed_b != 0,
            .accumulate_c = c.adds(kC)};
  }
};

using ProductKernels = TypeList<ProductForward>;

}  // namespace reprise
