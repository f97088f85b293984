// Losses of pairs: a net maps the two inputs of a pair to two vectors, which should be similar or
// not. The kernels contain no layer of their own, so that the output of any net can be compared.
#pragma once

#include <bit>

#include "lib/row_call.h"

namespace reprise {

// Numbers of the two inputs of a pair, by which kContrast finds equal inputs in a micro-batch.
// Equal inputs of a micro-batch have equal numbers. The numbers are encoded in the pair's target if
// it is 2 or more. A pair whose target is below 2 has no numbers, and counts as unequal to all
// others.
struct PairInputs {
  static constexpr uint32_t kMax = 1 << 14;  // All numbers are below kMax.
  // Numbers of the pair's first and second input.
  uint32_t first, second;

  // True if `target` contains the numbers of inputs.
  static constexpr bool are_in(float target) { return target >= 2.0f; }
  // Returns the numbers that `target` contains.
  static constexpr PairInputs of(float target) {
    const uint32_t bits = std::bit_cast<uint32_t>(target);
    return {bits / kMax % kMax, bits % kMax};
  }
  // Returns the target that contains these numbers.
  constexpr float target() const {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(2.0f) | first * kMax | second);
  }
};

// True if the second input of pair j is not a negative example for the first input of pair i. This
// is so if the two pairs have equal first inputs or equal second inputs, or if the first input of
// pair i equals the second input of pair j.
constexpr bool is_no_negative(float target_i, float target_j) {
  if (!PairInputs::are_in(target_i) || !PairInputs::are_in(target_j)) return false;
  const PairInputs i = PairInputs::of(target_i), j = PairInputs::of(target_j);
  return i.first == j.first || i.second == j.second || i.first == j.second;
}

// The input of both kernels: the vectors of B pairs, and a target for each. A target that is a NaN
// means that the entry is not a pair.
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

// a_i and b_i are the first and second vector of pair i, each divided by its length. A vector
// shorter than 1e-12 counts as 0, and its gradient is 0. c_ij = a_i . b_j. The loss of pair i with
// target t, over the pairs j of this micro-batch:
//
//   kContrast    -log(e^(c_ii / temperature) / the sum over j of e^(c_ij / temperature))
//                (InfoNCE, van den Oord et al. 2018, eq. 4, with the cosine as its score).
//                If symmetric: the mean of this loss and the same loss with c_ji in place of
//                c_ij (Radford et al. 2021, figure 3). Both sums leave out each c_ij whose second
//                input is not a negative example for the first (is_no_negative), except c_ii.
//   kCosine      1 - c_ii if t > 0, else max(0, c_ii - margin)   (PyTorch's CosineEmbeddingLoss)
//   kSimilarity  (c_ii - t)^2
//
// loss = the sum over the pairs, divided by scalars->step_labelled, the number of pairs in all
// micro-batches of the step. scalars->loss_sum += loss. dx is the gradient of loss, 0 for an entry
// without a pair. So the loss of a step is the mean over the pairs of all its micro-batches. But
// kContrast compares a pair only with pairs of its own micro-batch.
// Losses are summed in f64. A loss that is not finite sets scalars->skip. dx and x must not
// overlap.
template <typename Stored>
struct PairLossBackwardArgsOf {
  Stored* dx;  // [2B,D]
  StepScalars* scalars;
  PairLossInputOf<Stored> in;
};
// scalars->loss_sum += the sum of the losses; labelled += the number of pairs. correct += the
// number of pairs that are right. A pair of kContrast is right if c_ii is the first of the largest
// c_ij over j. A pair of kCosine is right if c_ii > (1 + margin) / 2 agrees with t > 0.
template <typename Stored>
struct PairLossEvaluateArgsOf {
  StepScalars* scalars;
  PairLossInputOf<Stored> in;
};

// Functions for a kernel `A` of the family.
namespace contract {
// True if the shapes of the input obey the contract.
template <typename A>
constexpr bool is_pair_loss_input(const ShapedCall& c) {
  return c[A::kX].rank == 2 && c[A::kX].shape[0] == 2 * c[A::kLabels].elements();
}
// Returns the input of both kernels.
template <typename A, typename Stored>
PairLossInputOf<Stored> pair_loss_input(const RowCall& c) {
  return {.x = c.pointer<Stored>(A::kX),
          .targets = c.f32(A::kLabels),
          .scratch = c.pointer<void>(A::kScratch),
          .B = c.leading(A::kX) / 2,
          .D = c.last(A::kX),
          .loss = c.attribute<PairLossAttribute>()};
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
  static constexpr KernelInfo kInfo = {.op = Op::kPairLoss,
                                       .pass = Pass::kBackward,
                                       .name = "pair_loss.backward",
                                       .attribute = kAttributeKind<PairLossAttribute>,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::act_out("dx[2B,D]"), contract::scalars_updated(),
                                                     contract::act_in("x[2B,D]"), contract::targets("targets[B]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static PairLossBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .scalars = c.scalars(kScalars),
            .in = contract::pair_loss_input<PairLossBackward, Stored>(c)};
  }
};

struct PairLossEvaluate {
  enum : uint32_t { kScalars, kX, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_pair_loss_input<PairLossEvaluate>(c));
  }
  static constexpr const char* kSynopsis =
      "scalars.loss_sum += sum of judged(kind, temperature, symmetric, margin, x, targets)";
  static constexpr KernelInfo kInfo = {.op = Op::kPairLoss,
                                       .pass = Pass::kEvaluate,
                                       .name = "pair_loss.evaluate",
                                       .attribute = kAttributeKind<PairLossAttribute>,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::scalars_updated(), contract::act_in("x[2B,D]"),
                                                     contract::targets("targets[B]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static PairLossEvaluateArgsOf<Stored> arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .in = contract::pair_loss_input<PairLossEvaluate, Stored>(c)};
  }
};

using PairLossKernels = TypeList<PairLossBackward, PairLossEvaluate>;

}  // namespace reprise
