// A skeleton to copy: a family of two kernels, y = x gain and its gradients, in the four files that a family is (CONTRIBUTING, "An op").
//
//   channel_gain.h         lib/ops/FAMILY.h        this file: arguments, contract, the step from a row to arguments
//   channel_gain_rules.h   lib/cpu/FAMILY_rules.h  scratch, where a kernel takes any
//   channel_gain.cpp       lib/cpu/FAMILY.cpp      the kernels; cuda/FAMILY.cu is their twin
//   channel_gain_test.cpp  tests/ops/FAMILY.cpp    judged here without the table of cases, which knows the kernels of kOps alone
//
// It is compiled and judged like a family of the library, but no list names it: kOps, Op and the backends do not know it. Comments that
// begin with COPYING say what goes wrong when it is copied. The first line of a real family says what it computes, and after whom.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// COPYING: outputs first, then what is updated, then inputs, then scratch, then numbers; the order of the enumerators below. A pointer has
// its shape beside it. `Stored` stands for activations and their gradients alone: parameters, their gradients and statistics are float.
//
// y = x gain, each of the M rows by the same C factors.
template <typename Stored>
struct ChannelGainForwardArgsOf {
  Stored* y;          // [M,C]; may be x
  const Stored* x;    // [M,C]
  const float* gain;  // [C]
  uint64_t M;
  uint32_t C;
};
// dx = dy gain; dgain = the sum over rows of dy x, in double.
template <typename Stored>
struct ChannelGainBackwardArgsOf {
  Stored* dx;     // [M,C]; may be dy
  float* dgain;   // [C], or null where gain is frozen
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
  // COPYING: the enumerators are the places of kInfo's arguments, one for one, and kArity, their number, is the last: lib/op.h does not
  // compile where there are more or fewer. A swapped pair of one shape compiles, and proves.
  enum : uint32_t { kY, kX, kGain, kArity };
  // COPYING: an absent optional argument must not be looked at, but by the words of namespace shape, which pass it. A contract that
  // compares elements() alone lets [2,3] pass for [3,2].
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::same_rows(c[kY], c[kX]) && shape::is_vector(c, kGain, c[kX].last_dimension()));
  }
  // COPYING: names are those of the arguments below and letters those of their shapes; tests/faces/kernels_test.cpp reads it.
  static constexpr const char* kSynopsis = "y = x gain";
  // COPYING: .op is a new enumerator at the END of Op (lib/plan.h): plans hold the number. An in-place pair is a promise that the kernel
  // reads an element before it writes any other one that it overlaps.
  static constexpr KernelInfo kInfo = {
      .op = Op{}, .pass = Pass::kForward, .name = "channel_gain.forward", .in_place_output = kY, .in_place_input = kX,
      .arguments = {contract::act_out("y[M,C]"), contract::act_in("x[M,C]"), contract::in("gain[C]")}, .shape_fault = fault};
  // COPYING: designated, in the order of the struct, each from its own enumerator. leading() and last() of a tensor that is always there.
  template <typename Stored>
  static ChannelGainForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .x = c.pointer<Stored>(kX), .gain = c.f32(kGain), .M = c.leading(kX), .C = c.last(kX)};
  }
};

struct ChannelGainBackward {
  enum : uint32_t { kDx, kDgain, kX, kGain, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t C = c[kX].last_dimension();
    return shape::require(shape::same_rows(c[kDx], c[kX]) && shape::same_rows(c[kDy], c[kX]) && shape::is_vector(c, kDgain, C) &&
                          shape::is_vector(c, kGain, C));
  }
  static constexpr const char* kSynopsis = "dx = dy gain; dgain = sum of dy x over M";
  // COPYING: a gradient of parameters is a `sum` (micro-batches add to it) and optional (a frozen one has none); scratch stands last.
  static constexpr KernelInfo kInfo = {
      .op = Op{}, .pass = Pass::kBackward, .name = "channel_gain.backward", .in_place_output = kDx, .in_place_input = kDy,
      .arguments = {contract::act_out("dx[M,C]"), contract::optional(contract::sum("dgain[C]")), contract::act_in("x[M,C]"),
                    contract::in("gain[C]"), contract::act_in("dy[M,C]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ChannelGainBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .dgain = c.f32(kDgain), .x = c.pointer<Stored>(kX), .gain = c.f32(kGain),
            .dy = c.pointer<Stored>(kDy), .scratch = c.pointer<void>(kScratch), .scratch_bytes = c.bytes(kScratch), .M = c.leading(kX),
            .C = c.last(kX), .accumulate_dgain = c.adds(kDgain)};
  }
};

// COPYING: lib/op.h joins this list into kOps, at its END: a kernel's index is its place.
using ChannelGainKernels = TypeList<ChannelGainForward, ChannelGainBackward>;

}  // namespace reprise
