// Permutes the dimensions after the first, for example to move channels first, to mix tokens or to
// shuffle channels.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y[m,c,b,r,e] (+)= x[m,r,b,c,e]. Every permutation of three dimensions can be written as an
// exchange of R and C, two of five sizes. B is between them, and runs of E elements stay
// contiguous.
template <typename Stored>
struct TransposeArgsOf {
  Stored* y;        // [M,C,B,R,E]
  const Stored* x;  // [M,R,B,C,E]
  uint64_t M, R, B, C, E;
  bool accumulate_y;
};

namespace contract {
// Returns the dimension of the input that is dimension d of the result.
constexpr uint32_t axis_at(const TransposeAttribute& a, uint32_t d) {
  return d == 0 ? 0 : d == 1 ? a.axis_1 : d == 2 ? a.axis_2 : a.axis_3;
}

// Returns the fault of a permutation from x to y.
constexpr Fault transpose_fault(const ShapedCall& c, const Tensor& y, const Tensor& x) {
  const TransposeAttribute& a = c.attribute<TransposeAttribute>();
  if (y.rank != x.rank) return Fault::kShape;
  for (uint32_t d = 0; d < kMaxRank; ++d) {
    const uint32_t axis = axis_at(a, d);
    if (d >= x.rank && axis != d) return Fault::kAttribute;
    if (y.shape[d] != x.shape[axis]) return Fault::kShape;
  }
  return Fault::kNone;
}

// Returns the sizes of a permutation whose input has the shape of `x`; the addresses are null.
template <typename Stored>
constexpr TransposeArgsOf<Stored> exchange_of(const TransposeAttribute& order, const Tensor& x) {
  const uint64_t N = x.shape[0], a = x.shape[1], b = x.shape[2], c = x.shape[3];
  // The sizes of the order b, c, a; the cases below change them for the other orders.
  TransposeArgsOf<Stored> args = {
      .y = nullptr, .x = nullptr, .M = N, .R = a, .B = 1, .C = b * c, .E = 1, .accumulate_y = false};
  if (order.axis_1 == 1 && order.axis_2 == 2) args.R = args.C = 1, args.E = a * b * c;
  if (order.axis_1 == 1 && order.axis_2 == 3) args.M = N * a, args.R = b, args.C = c;
  if (order.axis_1 == 2 && order.axis_2 == 1) args.C = b, args.E = c;
  if (order.axis_1 == 3 && order.axis_2 == 1) args.R = a * b, args.C = c;
  if (order.axis_1 == 3 && order.axis_2 == 2) args.B = b, args.C = c;
  return args;
}
}  // namespace contract

struct TransposeForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::transpose_fault(c, c[kY], c[kX]); }
  static constexpr const char* kSynopsis =
      "y = x by its dimensions [0, attribute.axis_1, attribute.axis_2, attribute.axis_3]";
  static constexpr KernelInfo kInfo = {.op = Op::kTranspose,
                                       .pass = Pass::kForward,
                                       .name = "transpose.forward",
                                       .attribute = kAttributeKind<TransposeAttribute>,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static TransposeArgsOf<Stored> arguments(const RowCall& c) {
    TransposeArgsOf<Stored> args = contract::exchange_of<Stored>(c.attribute<TransposeAttribute>(), c[kX]);
    args.y = c.pointer<Stored>(kY), args.x = c.pointer<Stored>(kX);
    return args;
  }
};

struct TransposeBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::transpose_fault(c, c[kDy], c[kDx]); }
  static constexpr const char* kSynopsis =
      "dx by its dimensions [0, attribute.axis_1, attribute.axis_2, attribute.axis_3] = dy";
  static constexpr KernelInfo kInfo = {.op = Op::kTranspose,
                                       .pass = Pass::kBackward,
                                       .name = "transpose.backward",
                                       .attribute = kAttributeKind<TransposeAttribute>,
                                       .arguments = {contract::act_sum("dx[...]"), contract::act_in("dy[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static TransposeArgsOf<Stored> arguments(const RowCall& c) {
    TransposeArgsOf<Stored> args = contract::exchange_of<Stored>(c.attribute<TransposeAttribute>(), c[kDx]);
    const uint64_t R = args.R;
    args.R = args.C, args.C = R;
    args.y = c.pointer<Stored>(kDx), args.x = c.pointer<Stored>(kDy), args.accumulate_y = c.adds(kDx);
    return args;
  }
};

using TransposeKernels = TypeList<TransposeForward, TransposeBackward>;

}  // namespace reprise
