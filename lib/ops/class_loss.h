// Cross-entropy of classes without a linear layer, of samples or of the places of maps, and Dice's coefficient beside it.
// Here because a net may end in anything that writes a number for each class: a convolution, a pool.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// What both passes read: M rows of logits, one for each class, and the rows' labels, which is_labelled (batch.h) tells from none. The rows are
// those of N samples, as many of each.
template <typename Stored>
struct ClassLossInputOf {
  const Stored* x;       // [M,C]
  const void* labels;    // [M] i32, or u8
  bool are_bytes;        // the labels
  const float* weights;  // [C] or null: each is 1
  void* scratch;
  uint64_t M, N;
  uint32_t C;
  ClassLossAttribute loss;

  constexpr bool is_labelled(uint64_t row) const {
    return are_bytes ? static_cast<const uint8_t*>(labels)[row] != kIgnoredByte : static_cast<const int32_t*>(labels)[row] != kIgnoredLabel;
  }
  constexpr int32_t label(uint64_t row) const { return are_bytes ? static_cast<const uint8_t*>(labels)[row] : static_cast<const int32_t*>(labels)[row]; }
};

// p = softmax(x) of each row, y its label, w the classes' weights, e = label_smoothing:
//
//   cross-entropy  of a row -(1 - e) w[y] log p[y] - (e / C) (the sum over c of w[c] log p[c]); of a step the sum over its rows with a label,
//                  divided by scalars->step_weight, the sum of w[y] over the labels in all its micro-batches   (PyTorch's)
//   Dice           of a sample 1 - the mean over c of (2 I[c] + s) / (P[c] + T[c] + s), s = 1e-5, with I, P and T the sums over its rows with a
//                  label of p[c] where c is y, of p[c], and of those rows   (MONAI's DiceLoss, of the softmax); of a step the sum over its
//                  samples, each times its labels / scalars->step_labelled, the labels in all micro-batches
//   loss           (1 - dice) cross-entropy + dice Dice
//
// scalars->loss_sum += loss; dx is its gradient, 0 of a row without a label. Losses and Dice's sums are f64.
// A loss that is not finite sets scalars->skip. A label that is neither a class nor none is a fault (DataFault::kLabel).
template <typename Stored>
struct ClassLossBackwardArgsOf {
  Stored* dx;  // [M,C]
  StepScalars* scalars;
  ClassLossInputOf<Stored> in;
};
// scalars->loss_sum += the loss of a step of this micro-batch alone, times its labels; labelled += these; correct += the rows among them whose
// label is the first of the largest logits.
template <typename Stored>
struct ClassLossEvaluateArgsOf {
  StepScalars* scalars;
  ClassLossInputOf<Stored> in;
};

// Of a kernel `A` of the family: its input, and whether that is right.
namespace contract {
template <typename A>
constexpr bool is_class_loss_input(const ShapedCall& c) {
  return shape::has_elements(c, A::kLabels, c[A::kX].leading_elements()) && shape::is_vector(c, A::kWeights, c[A::kX].last_dimension());
}
template <typename A, typename Stored>
ClassLossInputOf<Stored> class_loss_input(const RowCall& c) {
  return {.x = c.pointer<Stored>(A::kX), .labels = c.pointer<void>(A::kLabels), .are_bytes = c[A::kLabels].dtype == DType::kU8,
          .weights = c.f32(A::kWeights), .scratch = c.pointer<void>(A::kScratch), .M = c.leading(A::kX), .N = c.dimension(A::kX, 0),
          .C = c.last(A::kX), .loss = c.attribute<ClassLossAttribute>()};
}
}  // namespace contract

struct ClassLossBackward {
  enum : uint32_t { kDx, kScalars, kX, kLabels, kWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_class_loss_input<ClassLossBackward>(c) && shape::same_rows(c[kDx], c[kX]));
  }
  static constexpr const char* kSynopsis =
      "dx = slope(loss, x); scalars.loss_sum += loss; where loss = judged(softmax(x), labels, weights, label_smoothing, dice)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kClassLoss, .pass = Pass::kBackward, .name = "class_loss.backward",
      .attribute = kAttributeKind<ClassLossAttribute>, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::act_out("dx[M,C]"), contract::scalars_updated(), contract::act_in("x[M,C]"), contract::classes("labels[M]"),
                    contract::optional(contract::in("weights[C]")), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ClassLossBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .scalars = c.scalars(kScalars), .in = contract::class_loss_input<ClassLossBackward, Stored>(c)};
  }
};

struct ClassLossEvaluate {
  enum : uint32_t { kScalars, kX, kLabels, kWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(contract::is_class_loss_input<ClassLossEvaluate>(c)); }
  static constexpr const char* kSynopsis = "scalars.loss_sum += M judged(softmax(x), labels, weights, label_smoothing, dice)";
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
