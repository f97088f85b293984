// The softmax of rows outside attention, for example of scores with a bias, of channels or of
// mixtures.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y = softmax(x) of each row. For finite x the numbers of a row are not negative and add up to 1. A
// NaN, or a row of -infinity only, gives a row of NaN.
template <typename Stored>
struct SoftmaxForwardArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  uint64_t M;
  uint32_t C;
};
// dx = y (dy - the sum of y dy over the row)
template <typename Stored>
struct SoftmaxBackwardArgsOf {
  Stored* dx;        // [M,C]; may be dy
  const Stored* y;   // [M,C]
  const Stored* dy;  // [M,C]
  uint64_t M;
  uint32_t C;
};

struct SoftmaxForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kY], c[kX])); }
  static constexpr const char* kSynopsis = "y = exp(x) / sum of exp(x) over C";
  static constexpr KernelInfo kInfo = {.op = Op::kSoftmax,
                                       .pass = Pass::kForward,
                                       .name = "softmax.forward",
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[M,C]"), contract::act_in("x[M,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static SoftmaxForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .x = c.pointer<Stored>(kX), .M = c.leading(kX), .C = c.last(kX)};
  }
};

struct SoftmaxBackward {
  enum : uint32_t { kDx, kY, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(same_shape(c[kDx], c[kY]) && same_shape(c[kDy], c[kY]));
  }
  static constexpr const char* kSynopsis = "dx = y (dy - sum of y dy over C)";
  static constexpr KernelInfo kInfo = {.op = Op::kSoftmax,
                                       .pass = Pass::kBackward,
                                       .name = "softmax.backward",
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[M,C]"), contract::act_in("y[M,C]"),
                                                     contract::act_in("dy[M,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static SoftmaxBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .y = c.pointer<Stored>(kY),
            .dy = c.pointer<Stored>(kDy),
            .M = c.leading(kY),
            .C = c.last(kY)};
  }
};

using SoftmaxKernels = TypeList<SoftmaxForward, SoftmaxBackward>;

}  // namespace reprise
