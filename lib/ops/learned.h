// A parameter as an activation: learned positions, a class token, a layer's scale. A leaf: the one op that reads no activation.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y = w, rounded where activations are.
template <typename Stored>
struct LearnedForwardArgsOf {
  Stored* y;       // [n]
  const float* w;  // [n]
  uint64_t n;
};
template <typename Stored>
struct LearnedBackwardArgsOf {
  float* dw;         // [n]
  const Stored* dy;  // [n]
  uint64_t n;
  bool accumulate_dw;
};

struct LearnedForward {
  enum : uint32_t { kY, kW, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kY], c[kW])); }
  static constexpr const char* kSynopsis = "y = w";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLearned, .pass = Pass::kForward, .name = "learned.forward", .arguments = {contract::act_out("y[...]"), contract::in("w[...]")},
      .shape_fault = fault};
  template <typename Stored>
  static LearnedForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .w = c.f32(kW), .n = c[kY].elements()};
  }
};

struct LearnedBackward {
  enum : uint32_t { kDw, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kDw], c[kDy])); }
  static constexpr const char* kSynopsis = "dw = dy";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLearned, .pass = Pass::kBackward, .name = "learned.backward", .arguments = {contract::sum("dw[...]"), contract::act_in("dy[...]")},
      .shape_fault = fault};
  template <typename Stored>
  static LearnedBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw), .dy = c.pointer<Stored>(kDy), .n = c[kDw].elements(), .accumulate_dw = c.adds(kDw)};
  }
};

using LearnedKernels = TypeList<LearnedForward, LearnedBackward>;

}  // namespace reprise
