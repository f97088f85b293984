// Losses of pairs: two inputs go through one net, and what it writes of them should be alike, or not.
// Here without a layer of its own, because whatever a net ends in may be what is compared.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// What both passes read: the vectors of B pairs, and what is wanted of each, of which NaN is none.
//
//   x   row 0: pair 0's first   row 1: its second   row 2: pair 1's first   ...
template <typename Stored>
struct PairLossInputOf {
  const Stored* x;       // [2B,D]
  const float* targets;  // [B]
  void* scratch;
  uint64_t B;
  uint32_t D;
  PairLossAttribute loss;
};

// a_i and b_i are pair i's first and second, each divided by its length; one that is shorter than 1e-12 is 0, and so is its slope. c_ij = a_i . b_j.
// Of pair i with its target t, and over the pairs j of this micro-batch that have one:
//
//   kContrast    -log(e^(c_ii / temperature) / the sum over j of e^(c_ij / temperature))   (InfoNCE, van den Oord et al. 2018, eq. 4, with the
//                cosine as its score); t is not read. Symmetric: half of that and half of the same with c_ji for c_ij (Radford et al. 2021, figure 3)
//   kCosine      1 - c_ii where t > 0, else max(0, c_ii - margin)   (PyTorch's CosineEmbeddingLoss)
//   kSimilarity  (c_ii - t)^2
//
// loss = the sum over the pairs, divided by scalars->step_labelled, the pairs in all micro-batches of the step; scalars->loss_sum += loss; dx is its
// gradient, 0 of a pair that is none. So a step of several micro-batches has the mean of their losses, but kContrast tells a pair from those of its
// own micro-batch alone. Losses are summed in f64. A loss that is not finite sets scalars->skip.
// dx and x are apart.
template <typename Stored>
struct PairLossBackwardArgsOf {
  Stored* dx;  // [2B,D]
  StepScalars* scalars;
  PairLossInputOf<Stored> in;
};
// scalars->loss_sum += the sum of the losses; labelled += the pairs; correct += those of kContrast where j = i is the first with the largest c_ij,
// and those of kCosine whose c_ii is above (1 + margin) / 2 where t > 0, and not where it is not.
template <typename Stored>
struct PairLossEvaluateArgsOf {
  StepScalars* scalars;
  PairLossInputOf<Stored> in;
};

// Of a kernel `A` of the family: its input, and whether that is right.
namespace contract {
template <typename A>
constexpr bool is_pair_loss_input(const ShapedCall& c) {
  return c[A::kX].rank == 2 && c[A::kX].shape[0] == 2 * c[A::kLabels].elements();
}
template <typename A, typename Stored>
PairLossInputOf<Stored> pair_loss_input(const RowCall& c) {
  return {.x = c.pointer<Stored>(A::kX), .targets = c.f32(A::kLabels), .scratch = c.pointer<void>(A::kScratch), .B = c.leading(A::kX) / 2,
          .D = c.last(A::kX), .loss = c.attribute<PairLossAttribute>()};
}
}  // namespace contract

struct PairLossBackward {
  enum : uint32_t { kDx, kScalars, kX, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_pair_loss_input<PairLossBackward>(c) && shape::same_rows(c[kDx], c[kX]));
  }
  static constexpr const char* kSynopsis =
      "dx = slope(loss, x) / scalars.step_labelled; scalars.loss_sum += (sum of loss) / scalars.step_labelled; "
      "where loss = judged(kind, temperature, symmetric, margin, x, targets)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kPairLoss, .pass = Pass::kBackward, .name = "pair_loss.backward",
      .attribute = kAttributeKind<PairLossAttribute>, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::act_out("dx[2B,D]"), contract::scalars_updated(), contract::act_in("x[2B,D]"), contract::targets("targets[B]"),
                    contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static PairLossBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .scalars = c.scalars(kScalars), .in = contract::pair_loss_input<PairLossBackward, Stored>(c)};
  }
};

struct PairLossEvaluate {
  enum : uint32_t { kScalars, kX, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(contract::is_pair_loss_input<PairLossEvaluate>(c)); }
  static constexpr const char* kSynopsis = "scalars.loss_sum += sum of judged(kind, temperature, symmetric, margin, x, targets)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kPairLoss, .pass = Pass::kEvaluate, .name = "pair_loss.evaluate",
      .attribute = kAttributeKind<PairLossAttribute>, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::scalars_updated(), contract::act_in("x[2B,D]"), contract::targets("targets[B]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static PairLossEvaluateArgsOf<Stored> arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .in = contract::pair_loss_input<PairLossEvaluate, Stored>(c)};
  }
};

using PairLossKernels = TypeList<PairLossBackward, PairLossEvaluate>;

}  // namespace reprise
