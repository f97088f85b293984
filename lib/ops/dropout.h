// Dropout. The backward draws the mask again instead of storing it.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y = x / (1-p) if the element's draw >= dropout_threshold(p), else 0. Element i uses draw i /
// shared of the mask (rng.h). The backward applies the same function to dy.
template <typename Stored>
struct DropoutArgsOf {
  Stored* y;  // [n]; may be x
  const Stored* x;             // [n]
  const StepScalars* scalars;  // state[0]: seed, step and micro-batch of the mask
  uint64_t n;
  DropoutAttribute dropout;
};

namespace contract {
// Returns the fault of forward or backward.
constexpr Fault dropout_fault(const ShapedCall& c) {
  const uint64_t shared = c.attribute<DropoutAttribute>().shared;
  return shared == 0 || c[0].elements() % shared != 0 ? Fault::kAttribute : shape::all_alike(c, 2);
}
}  // namespace contract

struct DropoutForward {
  enum : uint32_t { kY, kX, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::dropout_fault(c); }
  static constexpr const char* kSynopsis =
      "y = (kept ? x / (1 - probability) : 0); where kept = draw(stream, scalars) by attribute.shared";
  static constexpr KernelInfo kInfo = {.op = Op::kDropout,
                                       .pass = Pass::kForward,
                                       .name = "dropout.forward",
                                       .attribute = kAttributeKind<DropoutAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]"),
                                                     contract::scalars_in()},
                                       .shape_fault = fault};
  template <typename Stored>
  static DropoutArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .scalars = c.scalars(kScalars),
            .n = c[kY].elements(),
            .dropout = c.attribute<DropoutAttribute>()};
  }
};

struct DropoutBackward {
  enum : uint32_t { kDx, kDy, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::dropout_fault(c); }
  static constexpr const char* kSynopsis =
      "dx = (kept ? dy / (1 - probability) : 0); where kept = draw(stream, scalars) by attribute.shared";
  static constexpr KernelInfo kInfo = {.op = Op::kDropout,
                                       .pass = Pass::kBackward,
                                       .name = "dropout.backward",
                                       .attribute = kAttributeKind<DropoutAttribute>,
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("dx[...]"), contract::act_in("dy[...]"),
                                                     contract::scalars_in()},
                                       .shape_fault = fault};
  template <typename Stored>
  static DropoutArgsOf<Stored> arguments(const RowCall& c) {
    return DropoutForward::arguments<Stored>(c);
  }
};

using DropoutKernels = TypeList<DropoutForward, DropoutBackward>;

}  // namespace reprise
