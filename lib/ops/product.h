// Products of two activations, matrix by matrix: the scores and the sums of an attention that no kernel of attention's takes.
// One kernel is the forward and both gradients: the gradient of either factor is a product of the other one and dc.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// c[b] (+)= a[b] b[b] for each of B pairs of matrices.
template <typename Stored>
struct ProductArgsOf {
  Stored* c;        // [B,M,N]
  const Stored* a;  // [B,M,K], or [B,K,M] where it is turned
  const Stored* b;  // [B,K,N], or [B,N,K] where it is turned
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t B;
  uint32_t M, N, K;
  bool turned_a, turned_b, accumulate_c;
};

namespace contract {
// M, N and K of a call, and how many matrices there are.
struct ProductSizes {
  uint64_t B;
  uint32_t M, N, K;
};
constexpr uint32_t side(const Tensor& t, bool last) { return t.shape[t.rank - (last ? 1 : 2)]; }
constexpr ProductSizes product_sizes(const Tensor& c, const Tensor& a, const ProductAttribute& how) {
  const uint32_t M = side(c, false), N = side(c, true);
  return {M == 0 || N == 0 ? 0 : c.elements() / M / N, M, N, side(a, how.turned_a == 0)};
}
constexpr bool same_matrices(const Tensor& x, const Tensor& y) {
  for (uint32_t d = 0; d + 2 < x.rank; ++d) {
    if (x.shape[d] != y.shape[d]) return false;
  }
  return x.rank == y.rank;
}
constexpr Fault product_fault(const Tensor& c, const Tensor& a, const Tensor& b, const ProductAttribute& how) {
  if (c.rank < 2 || !same_matrices(a, c) || !same_matrices(b, c)) return Fault::kShape;
  const bool turned_a = how.turned_a != 0, turned_b = how.turned_b != 0;
  return shape::require(side(a, turned_a) == side(c, false) && side(b, !turned_b) == side(c, true) && side(a, !turned_a) == side(b, turned_b));
}
}  // namespace contract

struct ProductForward {
  enum : uint32_t { kC, kA, kB, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::product_fault(c[kC], c[kA], c[kB], c.attribute<ProductAttribute>()); }
  static constexpr const char* kSynopsis = "c = a b, of which attribute.turned_a and attribute.turned_b turn a and b";
  static constexpr KernelInfo kInfo = {
      .op = Op::kProduct, .pass = Pass::kForward, .name = "product.forward", .attribute = kAttributeKind<ProductAttribute>,
      .arguments = {contract::act_sum("c[B,M,N]"), contract::act_in("a[B,M,K]"), contract::act_in("b[B,K,N]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ProductArgsOf<Stored> arguments(const RowCall& c) {
    const ProductAttribute& how = c.attribute<ProductAttribute>();
    const contract::ProductSizes sizes = contract::product_sizes(c[kC], c[kA], how);
    return {.c = c.pointer<Stored>(kC), .a = c.pointer<Stored>(kA), .b = c.pointer<Stored>(kB), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .B = sizes.B, .M = sizes.M, .N = sizes.N, .K = sizes.K, .turned_a = how.turned_a != 0,
            .turned_b = how.turned_b != 0, .accumulate_c = c.adds(kC)};
  }
};

using ProductKernels = TypeList<ProductForward>;

}  // namespace reprise
