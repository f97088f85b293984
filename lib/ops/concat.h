// Concatenation of tensors along one dimension: the channels of images (U-Net's skips, DenseNet),
// a class token before a sequence. The gradient of each part is a box of dy, which
// columns.forward computes.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// The maximum number of parts.
constexpr uint32_t kMaxConcatParts = 8;

// A row of y is the concatenation of one row of each part.
template <typename Stored>
struct ConcatArgsOf {
  Stored* y;                              // [M,K]
  const Stored* parts[kMaxConcatParts];  // [M,ends[i] - ends[i - 1]]; null: absent
  uint64_t ends[kMaxConcatParts];        // End of part i in a row of y.
  uint64_t M, K;
};

struct ConcatForward {
  enum : uint32_t { kY, kA, kB, kC, kD, kE, kF, kG, kH, kArity };
  static_assert(kArity == 1 + kMaxConcatParts);

  // Returns the first dimension along which y is longer than a.
  static constexpr uint32_t axis_of(const ShapedCall& c) {
    uint32_t axis = 0;
    while (axis < kMaxRank && c[kY].shape[axis] == c[kA].shape[axis]) ++axis;
    return axis;
  }
  static constexpr Fault fault(const ShapedCall& c) {
    const Tensor& y = c[kY];
    const uint32_t axis = axis_of(c);
    if (axis == 0 || axis >= y.rank) return Fault::kShape;
    uint64_t length = 0;
    for (uint32_t i = kA; i < kArity; ++i) {
      if (!c.has(i)) continue;
      if (c[i].rank != y.rank) return Fault::kShape;
      for (uint32_t d = 0; d < kMaxRank; ++d) {
        if (d != axis && c[i].shape[d] != y.shape[d]) return Fault::kShape;
      }
      length += c[i].shape[axis];
    }
    return shape::require(length == y.shape[axis]);
  }
  static constexpr const char* kSynopsis = "y = a, b, c, d, e, f, g and h side by side";
  static constexpr KernelInfo kInfo = {
      .op = Op::kConcat, .pass = Pass::kForward, .name = "concat.forward",
      .arguments = {contract::act_out("y[...]"), contract::act_in("a[...]"), contract::act_in("b[...]"),
                    contract::optional(contract::act_in("c[...]")), contract::optional(contract::act_in("d[...]")),
                    contract::optional(contract::act_in("e[...]")), contract::optional(contract::act_in("f[...]")),
                    contract::optional(contract::act_in("g[...]")), contract::optional(contract::act_in("h[...]"))},
      .shape_fault = fault};
  template <typename Stored>
  static ConcatArgsOf<Stored> arguments(const RowCall& c) {
    const uint32_t axis = axis_of(c);
    uint64_t M = 1;
    for (uint32_t d = 0; d < axis; ++d) M *= c[kY].shape[d];
    ConcatArgsOf<Stored> args = {
        .y = c.pointer<Stored>(kY), .parts = {}, .ends = {}, .M = M, .K = c[kY].elements() / M};
    uint64_t end = 0;
    for (uint32_t i = 0; i < kMaxConcatParts; ++i) {
      if (c.has(kA + i)) args.parts[i] = c.pointer<Stored>(kA + i), end += c[kA + i].elements() / M;
      args.ends[i] = end;
    }
    return args;
  }
};

using ConcatKernels = TypeList<ConcatForward>;

}  // namespace reprise
