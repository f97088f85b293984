// Cross-entropy of classes, and Dice's loss, for samples or for each position of a map. The kernels
// contain no linear layer: a net may end in any op that writes a number for each class, for example
// a convolution or a pool.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// The input of both kernels: M rows of logits, with one logit for each class, and a label for each
// row. is_labelled() (batch.h) tells which rows have a label. The rows belong to N samples, which
// have equally many rows each.
template <typename Stored>
struct ClassLossInputOf {
  const Stored* x;       // Logits, [M,C].
  const void* labels;    // [M], i32 or u8
  bool are_bytes;        // True if the labels are u8.
  const float* weights;  // [C], the classes' weights; null: each is 1.
  void* scratch;
  uint64_t M, N;
  uint32_t C;
  ClassLossAttribute loss;

  // True if row `row` has a label.
  constexpr bool is_labelled(uint64_t row) const {
    return are_bytes ? static_cast<const uint8_t*>(labels)[row] != kIgnoredByte
                     : static_cast<const int32_t*>(labels)[row] != kIgnoredLabel;
  }
  // Returns the label of row `row`.
  constexpr int32_t label(uint64_t row) const {
    return are_bytes ? static_cast<const uint8_t*>(labels)[row] : static_cast<const int32_t*>(labels)[row];
  }
};

// With p = softmax(x) of each row, y its label, w the classes' weights, e = label_smoothing:
//
//   cross-entropy  row: -(1 - e) w[y] log p[y] - (e / C) (sum over c of w[c] log p[c])
//                  step: the sum over its rows with a label, divided by scalars->step_weight, the
//                  sum of w[y] over the labels in all its micro-batches (as PyTorch)
//   Dice           sample: 1 - the mean over c of (2 I[c] + s) / (P[c] + T[c] + s), s = 1e-5.
//                  Over the sample's rows with a label: I[c] is the sum of p[c] of the rows whose
//                  label is c, P[c] is the sum of p[c] of all rows, and T[c] is the number of rows
//                  whose label is c (MONAI's DiceLoss on the softmax)
//                  step: the sum over its samples, each times (the number of its labels) /
//                  scalars->step_labelled, the number of labels in all micro-batches
//   loss           (1 - dice) cross-entropy + dice Dice
//
// scalars->loss_sum += loss. dx is the gradient of the loss, 0 for a row without a label. Losses
// and Dice's sums are f64.
// A loss that is not finite sets scalars->skip. A label outside the classes is a fault
// (DataFault::kLabel).
template <typename Stored>
struct ClassLossBackwardArgsOf {
  Stored* dx;  // [M,C]
  StepScalars* scalars;
  ClassLossInputOf<Stored> in;
};
// Adds sums from which the loss of a whole data set follows.
// Without weights: scalars->loss_sum += L times the loss of a step that has only this micro-batch.
// L is the number of labels.
// With weights: loss_sum += L times the part dice * Dice of that loss. weighted_loss += the sum of
// (1 - dice) * cross-entropy before the division. step_weight += the sum of w[y].
// labelled += L. correct += the number of rows whose label is the first of the largest logits.
template <typename Stored>
struct ClassLossEvaluateArgsOf {
  StepScalars* scalars;
  ClassLossInputOf<Stored> in;
};

// Functions for a kernel `A` of the family.
namespace contract {
// True if the shapes of the input obey the contract.
template <typename A>
constexpr bool is_class_loss_input(const ShapedCall& c) {
  return shape::has_elements(c, A::kLabels, c[A::kX].leading_elements()) &&
         shape::is_vector(c, A::kWeights, c[A::kX].last_dimension());
}
// Returns the input of both kernels.
template <typename A, typename Stored>
ClassLossInputOf<Stored> class_loss_input(const RowCall& c) {
  return {.x = c.pointer<Stored>(A::kX),
          .labels = c.pointer<void>(A::kLabels),
          .are_bytes = c[A::kLabels].dtype == DType::kU8,
          .weights = c.f32(A::kWeights),
          .scratch = c.pointer<void>(A::kScratch),
          .M = c.leading(A::kX),
          .N = c.dimension(A::kX, 0),
          .C = c.last(A::kX),
          .loss = c.attribute<ClassLossAttribute>()};
}
}  // namespace contract

struct ClassLossBackward {
  enum : uint32_t { kDx, kScalars, kX, kLabels, kWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_class_loss_input<ClassLossBackward>(c) && shape::same_rows(c[kDx], c[kX]));
  }
  static constexpr const char* kSynopsis =
      "dx = slope(loss, x); scalars.loss_sum += loss; where loss = judged(softmax(x), labels, weights, "
      "label_smoothing, dice)";
  static constexpr KernelInfo kInfo = {.op = Op::kClassLoss,
                                       .pass = Pass::kBackward,
                                       .name = "class_loss.backward",
                                       .attribute = kAttributeKind<ClassLossAttribute>,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::act_out("dx[M,C]"), contract::scalars_updated(),
                                                     contract::act_in("x[M,C]"), contract::classes("labels[M]"),
                                                     contract::optional(contract::in("weights[C]")),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ClassLossBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .scalars = c.scalars(kScalars),
            .in = contract::class_loss_input<ClassLossBackward, Stored>(c)};
  }
};

struct ClassLossEvaluate {
  enum : uint32_t { kScalars, kX, kLabels, kWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_class_loss_input<ClassLossEvaluate>(c));
  }
  static constexpr const char* kSynopsis =
      "scalars.loss_sum += M judged(softmax(x), labels, weights, label_smoothing, dice)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kClassLoss, .pass = Pass::kEvaluate, .name = "class_loss.evaluate",
      .attribute = kAttributeKind<ClassLossAttribute>, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::scalars_updated(), contract::act_in("x[M,C]"), contract::classes("labels[M]"),
                    contract::optional(contract::in("weights[C]")), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ClassLossEvaluateArgsOf<Stored> arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .in = contract::class_loss_input<ClassLossEvaluate, Stored>(c)};
  }
};

using ClassLossKernels = TypeList<ClassLossBackward, ClassLossEvaluate>;

}  // namespace reprise
