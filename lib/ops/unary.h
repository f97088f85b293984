// Functions of one number, applied to every element: one op, whose attribute names the function
// (UnaryFunction in lib/attributes.h).
//
//   silu         x s(x), s(x) = 1 / (1 + e^-x)  (Elfwing, Uchibe & Doya 2018; swish)
//   hardswish    x min(max(x + 3, 0), 6) / 6    (Howard et al. 2019)
//   hardsigmoid  min(max(x + 3, 0), 6) / 6      as PyTorch and MobileNetV3 have it
//   sigmoid      s(x)
//   relu6        min(max(x, 0), 6)
//   leaky_relu   x > 0 ? x : slope x
//   elu          x > 0 ? x : alpha (e^x - 1)    (Clevert, Unterthiner & Hochreiter 2016)
//   tanh         tanh x
//   softplus     log(1 + e^x)
//   mish         x tanh(log(1 + e^x))           (Misra 2019)
//   quick_gelu   x s(1.702 x)                   (CLIP's)
//   exp          e^x
//   scale        factor x
//   at_least     max(x, bound)
//   at_most      min(x, bound)
//   sqrt         sqrt x
//   reciprocal   1 / x
//
// The derivative at a kink is PyTorch's. relu6 and hardsigmoid: 0 at both kinks. leaky_relu and elu
// at 0: the derivative from below. hardswish: 0 at -3 and 1 at 3. at_least and at_most: 1 at the
// bound, as torch.clamp. A NaN gives a NaN, so that a broken step is noticed.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y = f(x)
template <typename Stored>
struct UnaryForwardArgsOf {
  Stored* y;        // [n]; may be x
  const Stored* x;  // [n]
  uint64_t n;
  UnaryAttribute unary;
};
// dx = f'(x) dy
template <typename Stored>
struct UnaryBackwardArgsOf {
  Stored* dx;        // [n]; may be dy
  const Stored* x;   // [n]
  const Stored* dy;  // [n]
  uint64_t n;
  UnaryAttribute unary;
};

struct UnaryForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = f(x); where f = attribute.function of attribute.parameter";
  static constexpr KernelInfo kInfo = {.op = Op::kUnary,
                                       .pass = Pass::kForward,
                                       .name = "unary.forward",
                                       .attribute = kAttributeKind<UnaryAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static UnaryForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .n = c[kY].elements(),
            .unary = c.attribute<UnaryAttribute>()};
  }
};

struct UnaryBackward {
  enum : uint32_t { kDx, kX, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 3); }
  static constexpr const char* kSynopsis = "dx = dy f'(x); where f = attribute.function of attribute.parameter";
  static constexpr KernelInfo kInfo = {.op = Op::kUnary,
                                       .pass = Pass::kBackward,
                                       .name = "unary.backward",
                                       .attribute = kAttributeKind<UnaryAttribute>,
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[...]"), contract::act_in("x[...]"),
                                                     contract::act_in("dy[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static UnaryBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .x = c.pointer<Stored>(kX),
            .dy = c.pointer<Stored>(kDy),
            .n = c[kDx].elements(),
            .unary = c.attribute<UnaryAttribute>()};
  }
};

using UnaryKernels = TypeList<UnaryForward, UnaryBackward>;

}  // namespace reprise
