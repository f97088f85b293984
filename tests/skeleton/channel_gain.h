// A skeleton to copy: a family of two kernels, y = x gain and its gradients, in the four files of a
// family (CONTRIBUTING, "An op").
//
//   channel_gain.h         lib/ops/FAMILY.h        this file: arguments, contract, and how a row
//                                                  becomes arguments
//   channel_gain_rules.h   lib/cpu/FAMILY_rules.h  scratch, if a kernel needs any
//   channel_gain.cpp       lib/cpu/FAMILY.cpp      the kernels; cuda/FAMILY.cu has those for cards
//   channel_gain_test.cpp  tests/ops/FAMILY.cpp    its test, without the table of cases, which
//                                                  contains only the kernels of kOps
//
// It is compiled and tested like a family of the library, but kOps, Op and the backends do not
// contain it. Comments with COPYING warn of mistakes in a copy. In a real family, the first line
// states what the family computes, and its source.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// COPYING: outputs are first, then updated arguments, inputs, scratch and numbers, in the order of
// the enumerators below. A comment at each pointer gives its shape. Only activations and their
// gradients are `Stored`; parameters, their gradients and statistics are float.
//
// Arguments of y = x gain: each of the M rows is multiplied by the same C factors.
template <typename Stored>
struct ChannelGainForwardArgsOf {
  Stored* y;          // [M,C]; may be x
  const Stored* x;    // [M,C]
  const float* gain;  // [C]
  uint64_t M;
  uint32_t C;
};
// Arguments of the gradients: dx = dy gain, and dgain = the sum of dy x over rows, computed in
// double.
template <typename Stored>
struct ChannelGainBackwardArgsOf {
  Stored* dx;     // [M,C]; may be dy
  float* dgain;   // [C], or null if gain is frozen
  const Stored* x;
  const float* gain;
  const Stored* dy;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dgain;
};

struct ChannelGainForward {
  // COPYING: the enumerators are the indices of kInfo's arguments. The last enumerator, kArity,
  // must be the number of arguments; otherwise lib/op.h does not compile. But if two arguments of
  // one shape are exchanged, it compiles, and the proof accepts the plan.
  enum : uint32_t { kY, kX, kGain, kArity };
  // Returns the fault of a call's shapes; Fault::kNone if they obey the contract. COPYING: for
  // optional arguments use the functions of namespace shape, because they accept an absent one.
  // Compare shapes, because with equal elements() alone, [2,3] would be accepted for [3,2].
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::same_rows(c[kY], c[kX]) && shape::is_vector(c, kGain, c[kX].last_dimension()));
  }
  // COPYING: use the names of the arguments below, and the letters of their shapes.
  // tests/interfaces/kernels_test.cpp checks them.
  static constexpr const char* kSynopsis = "y = x gain";
  // COPYING: .op is a new enumerator at the END of Op (lib/plan.h), because plans store the number.
  // An in-place pair requires that the kernel reads an element before it writes another element
  // that overlaps it.
  static constexpr KernelInfo kInfo = {.op = Op{},
                                       .pass = Pass::kForward,
                                       .name = "channel_gain.forward",
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[M,C]"), contract::act_in("x[M,C]"),
                                                     contract::in("gain[C]")},
                                       .shape_fault = fault};
  // Returns the arguments of a row. COPYING: use designated initialisers in the order of the
  // struct, each from its own enumerator. Call leading() and last() only on a tensor that is always
  // present.
  template <typename Stored>
  static ChannelGainForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .gain = c.f32(kGain),
            .M = c.leading(kX),
            .C = c.last(kX)};
  }
};

struct ChannelGainBackward {
  enum : uint32_t { kDx, kDgain, kX, kGain, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t C = c[kX].last_dimension();
    return shape::require(shape::same_rows(c[kDx], c[kX]) && shape::same_rows(c[kDy], c[kX]) &&
                          shape::is_vector(c, kDgain, C) && shape::is_vector(c, kGain, C));
  }
  static constexpr const char* kSynopsis = "dx = dy gain; dgain = sum of dy x over M";
  // COPYING: a gradient of parameters is a `sum`, because micro-batches add to it, and is optional,
  // because a frozen parameter has none. Scratch is the last argument.
  static constexpr KernelInfo kInfo = {.op = Op{},
                                       .pass = Pass::kBackward,
                                       .name = "channel_gain.backward",
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[M,C]"),
                                                     contract::optional(contract::sum("dgain[C]")),
                                                     contract::act_in("x[M,C]"), contract::in("gain[C]"),
                                                     contract::act_in("dy[M,C]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ChannelGainBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dgain = c.f32(kDgain),
            .x = c.pointer<Stored>(kX),
            .gain = c.f32(kGain),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kX),
            .C = c.last(kX),
            .accumulate_dgain = c.adds(kDgain)};
  }
};

// COPYING: lib/op.h appends this list to kOps at its END, because the index of a kernel is its
// position.
using ChannelGainKernels = TypeList<ChannelGainForward, ChannelGainBackward>;

}  // namespace reprise
