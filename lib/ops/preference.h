// Losses on pairs of answers: from the loss of each label to that of each pair, and back to a weight for each label.
// Here because what a pair is worth is known only when both answers have been read: loss_head.forward gives each row's loss, these kernels
// the weights with which loss_head.backward learns the rows.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// l[p][i] = -(the sum of the losses of the rows of answer i of pair p): its log-probability. With n = scalars->step_labelled, the pairs of all
// micro-batches of the step, log s(x) = -log(1 + e^-x), and r[p][i] the answer's reward:
//
//   kDpo   r[p][i] = beta (l[p][i] - reference[p][i]), d = r[p][0] - r[p][1]                    (Rafailov et al. 2023, equation 7; with
//          loss = the sum of -(1 - label_smoothing) log s(d) - label_smoothing log s(-d), / n    label_smoothing Mitchell 2023)
//   kOrpo  a[i] = l[p][i] / (rows of the answer), r[p][i] = beta a[i]                           (Hong et al. 2024, equations 6 and 7)
//          d = log(e^a[0] / (1 - e^a[0])) - log(e^a[1] / (1 - e^a[1]))
//          loss = the sum of -beta log s(d), / n, + the sum of the losses of rows [whole, end[0]), / scalars->step_weight
//   kKto   r[p] = beta (l[p][0] - reference[p][0]); the second answers, each of another prompt, give the distance from the reference
//          z = the mean of l[p][1] - reference[p][1] over the micro-batch's pairs that have one, at least 0, of which there is no gradient
//          loss = the sum of w[p] (1 - s(wish[p] (r[p] - beta z))), / n                         (Ethayarajh et al. 2024, equation 7)
//          w[p] = desirable_weight where wish[p] is 1, undesirable_weight where it is -1
//
// weights[m] = the derivative of the loss by that of row m: 0 for a row of no answer. scalars->loss_sum += loss; correct += the pairs with a
// larger first reward, of kKto those with wish (r - beta z) above 0; rewards and judged += the first answers' and the second ones', of kKto
// those of answers that are wished for and of the others. All sums are in f64.
// A loss that is not finite sets scalars->skip. Rows that are none of the micro-batch's are a fault (DataFault::kPair).
struct PreferenceBackwardArgs {
  float* weights;  // [M]
  StepScalars* scalars;
  const double* losses;     // [M]
  const JudgedPair* pairs;  // [P]
  uint64_t M;
  uint32_t P;
  PreferenceAttribute preference;
};
// log_probabilities[p] = l[p], 0 where there is no pair; correct, rewards and judged as above. scalars->loss_sum += the sum of the pairs' losses, not
// divided, of which kOrpo's has the mean over its own rows [whole, end[0]); labelled += the pairs.
struct PreferenceEvaluateArgs {
  double* log_probabilities;  // [P,2]
  StepScalars* scalars;
  const double* losses;
  const JudgedPair* pairs;
  uint64_t M;
  uint32_t P;
  PreferenceAttribute preference;
};

struct PreferenceBackward {
  enum : uint32_t { kWeights, kScalars, kLosses, kPairs, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::has_elements(c, kWeights, c[kLosses].elements()) && shape::is_matrix(c, kPairs, c[kPairs].shape[0], JudgedPair::kNumbers));
  }
  static constexpr const char* kSynopsis =
      "weights = slope(loss, losses); scalars.loss_sum += loss; where loss = judged(kind, beta, pairs, losses) / scalars.step_labelled";
  static constexpr KernelInfo kInfo = {
      .op = Op::kPreference, .pass = Pass::kBackward, .name = "preference.backward", .attribute = kAttributeKind<PreferenceAttribute>,
      .attribute_is_cost = false, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::out("weights[M]"), contract::scalars_updated(), contract::in("losses[M]", Storage::kF64), contract::pairs()},
      .shape_fault = fault};
  static PreferenceBackwardArgs arguments(const RowCall& c) {
    return {.weights = c.f32(kWeights), .scalars = c.scalars(kScalars), .losses = c.pointer<double>(kLosses),
            .pairs = c.pointer<JudgedPair>(kPairs), .M = c[kLosses].elements(), .P = c.dimension(kPairs, 0),
            .preference = c.attribute<PreferenceAttribute>()};
  }
};

struct PreferenceEvaluate {
  enum : uint32_t { kLogProbabilities, kScalars, kLosses, kPairs, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::is_matrix(c, kPairs, c[kPairs].shape[0], JudgedPair::kNumbers) &&
                          shape::is_matrix(c, kLogProbabilities, c[kPairs].shape[0], 2));
  }
  static constexpr const char* kSynopsis =
      "log_probabilities = -(sum of losses over pairs); scalars.loss_sum += judged(kind, beta, pairs, losses)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kPreference, .pass = Pass::kEvaluate, .name = "preference.evaluate", .attribute = kAttributeKind<PreferenceAttribute>,
      .attribute_is_cost = false, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::out("log_probabilities[P,2]", Storage::kF64), contract::scalars_updated(), contract::in("losses[M]", Storage::kF64),
                    contract::pairs()},
      .shape_fault = fault};
  static PreferenceEvaluateArgs arguments(const RowCall& c) {
    return {.log_probabilities = c.pointer<double>(kLogProbabilities), .scalars = c.scalars(kScalars), .losses = c.pointer<double>(kLosses),
            .pairs = c.pointer<JudgedPair>(kPairs), .M = c[kLosses].elements(), .P = c.dimension(kPairs, 0),
            .preference = c.attribute<PreferenceAttribute>()};
  }
};

using PreferenceKernels = TypeList<PreferenceBackward, PreferenceEvaluate>;

}  // namespace reprise
