// Losses of single numbers: squares, distances, Huber's loss, and binary cross-entropy of labels
// that are independent of each other. The kernels contain no linear layer, so that the output of
// any net can be judged.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// The input of both kernels: M rows of C numbers, and a target for each number. A NaN means that a
// number has no target.
template <typename Stored>
struct TargetLossInputOf {
  const Stored* x;                // [M,C]
  const float* targets;           // [M,C]
  const float* positive_weights;  // [C]; null: each is 1. kBinary only.
  void* scratch;
  uint64_t M;
  uint32_t C;
  TargetLossAttribute loss;
};

// l(x, t), with d = x - t and s(x) = 1 / (1 + e^-x), as in PyTorch:
//
//   kMse     d^2
//   kL1      |d|, with derivative 0 if d is 0
//   kHuber   d^2 / 2 if |d| <= delta, else delta (|d| - delta / 2)
//   kBinary  -positive_weights[c] t log s(x) - (1 - t) log s(-x)
//
// loss = the sum over the numbers with a target, divided by scalars->step_labelled, the number of
// targets in all micro-batches of the step. scalars->loss_sum += loss. dx is the gradient of loss,
// 0 for a number without a target. Losses are summed in f64. A loss that is not finite sets
// scalars->skip.
template <typename Stored>
struct TargetLossBackwardArgsOf {
  Stored* dx;  // [M,C]
  StepScalars* scalars;
  TargetLossInputOf<Stored> in;
};
// scalars->loss_sum += the sum of the losses; labelled += the number of targets. For kBinary,
// correct += the number of x whose sign agrees with the target: positive if the target is above
// 1/2.
template <typename Stored>
struct TargetLossEvaluateArgsOf {
  StepScalars* scalars;
  TargetLossInputOf<Stored> in;
};

// Functions for a kernel `A` of the family.
namespace contract {
// True if the shapes of the input obey the contract.
template <typename A>
constexpr bool is_target_loss_input(const ShapedCall& c) {
  const bool weighs = c[A::kX].elements() > 0 && c.has(A::kWeights);
  return c[A::kLabels].elements() == c[A::kX].elements() &&
         shape::is_vector(c, A::kWeights, c[A::kX].last_dimension()) &&
         (!weighs || c.attribute<TargetLossAttribute>().kind == static_cast<uint32_t>(TargetLossKind::kBinary));
}
// Returns the input of both kernels.
template <typename A, typename Stored>
TargetLossInputOf<Stored> target_loss_input(const RowCall& c) {
  return {.x = c.pointer<Stored>(A::kX),
          .targets = c.f32(A::kLabels),
          .positive_weights = c.f32(A::kWeights),
          .scratch = c.pointer<void>(A::kScratch),
          .M = c.leading(A::kX),
          .C = c.last(A::kX),
          .loss = c.attribute<TargetLossAttribute>()};
}
}  // namespace contract

struct TargetLossBackward {
  enum : uint32_t { kDx, kScalars, kX, kLabels, kWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_target_loss_input<TargetLossBackward>(c) && shape::same_rows(c[kDx], c[kX]));
  }
  static constexpr const char* kSynopsis =
      "dx = slope(loss, x) / scalars.step_labelled; scalars.loss_sum += (sum of loss) / scalars.step_labelled; "
      "where loss = judged(kind, delta, x, targets, positive_weights)";
  static constexpr KernelInfo kInfo = {.op = Op::kTargetLoss,
                                       .pass = Pass::kBackward,
                                       .name = "target_loss.backward",
                                       .attribute = kAttributeKind<TargetLossAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::act_out("dx[M,C]"), contract::scalars_updated(),
                                                     contract::act_in("x[M,C]"), contract::targets("targets[M,C]"),
                                                     contract::optional(contract::in("positive_weights[C]")),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static TargetLossBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .scalars = c.scalars(kScalars),
            .in = contract::target_loss_input<TargetLossBackward, Stored>(c)};
  }
};

struct TargetLossEvaluate {
  enum : uint32_t { kScalars, kX, kLabels, kWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_target_loss_input<TargetLossEvaluate>(c));
  }
  static constexpr const char* kSynopsis =
      "scalars.loss_sum += sum of judged(kind, delta, x, targets, positive_weights)";
  static constexpr KernelInfo kInfo = {.op = Op::kTargetLoss,
                                       .pass = Pass::kEvaluate,
                                       .name = "target_loss.evaluate",
                                       .attribute = kAttributeKind<TargetLossAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::scalars_updated(), contract::act_in("x[M,C]"),
                                                     contract::targets("targets[M,C]"),
                                                     contract::optional(contract::in("positive_weights[C]")),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static TargetLossEvaluateArgsOf<Stored> arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .in = contract::target_loss_input<TargetLossEvaluate, Stored>(c)};
  }
};

using TargetLossKernels = TypeList<TargetLossBackward, TargetLossEvaluate>;

}  // namespace reprise
