// Losses on pairs of answers. The loss of a pair is known only when both answers have been read. So
// loss_head.forward first gives the loss of each row. From these losses the kernels here compute
// the loss of each pair and a weight for each row. Then loss_head.backward computes the gradients
// with these weights.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// l[p][i] = -(the sum of the losses of the rows of answer i of pair p): the answer's
// log-probability. r[p][i] is the answer's reward. n = scalars->step_labelled, the number of pairs
// in all micro-batches of the step. log s(x) = -log(1 + e^-x).
//
//   kDpo   r[p][i] = beta (l[p][i] - reference[p][i]), d = r[p][0] - r[p][1]
//          loss = the sum of -(1 - label_smoothing) log s(d) - label_smoothing log s(-d), / n
//          (Rafailov et al. 2023, equation 7; with label_smoothing Mitchell 2023)
//   kOrpo  a[i] = l[p][i] / (rows of the answer), r[p][i] = beta a[i]
//          d = log(e^a[0] / (1 - e^a[0])) - log(e^a[1] / (1 - e^a[1]))
//          loss = the sum of -beta log s(d), / n, + the sum of the losses of rows [whole, end[0]),
//          / scalars->step_weight   (Hong et al. 2024, equations 6 and 7)
//   kKto   r[p] = beta (l[p][0] - reference[p][0])
//          z = the mean of l[p][1] - reference[p][1] over the micro-batch's pairs with a second
//          answer, each of another prompt: the distance from the reference, at least 0. It has
//          no gradient.
//          loss = the sum of w[p] (1 - s(wish[p] (r[p] - beta z))), / n
//          w[p] = desirable_weight if wish[p] is 1, undesirable_weight if it is -1
//          (Ethayarajh et al. 2024, equation 7)
//
// weights[m] = the derivative of the loss with respect to the loss of row m; 0 for a row on which
// the loss does not depend. scalars->loss_sum += loss. correct += the number of pairs whose first
// reward is larger; for kKto, of pairs with wish (r - beta z) > 0. rewards += the sums of the
// rewards, and judged += the number of rewards: [0] of first answers and [1] of second answers. For
// kKto, [0] is of desirable answers and [1] of undesirable answers. All sums are in f64.
// A loss that is not finite sets scalars->skip. A pair whose rows are not rows of the micro-batch
// is a fault (DataFault::kPair).
struct PreferenceBackwardArgs {
  float* weights;  // [M]
  StepScalars* scalars;
  const double* losses;     // [M]
  const JudgedPair* pairs;  // [P]
  uint64_t M;
  uint32_t P;
  PreferenceAttribute preference;
};
// log_probabilities[p] = l[p], 0 for an entry without a pair. correct, rewards and judged are as in
// PreferenceBackwardArgs. labelled += the number of pairs. scalars->loss_sum += the sum of the
// pairs' losses, without a division by n. In the loss of kOrpo, the losses of rows [whole, end[0])
// are then divided by the number of these rows.
struct PreferenceEvaluateArgs {
  double* log_probabilities;  // [P,2]
  StepScalars* scalars;
  const double* losses;     // [M]
  const JudgedPair* pairs;  // [P]
  uint64_t M;
  uint32_t P;
  PreferenceAttribute preference;
};

struct PreferenceBackward {
  enum : uint32_t { kWeights, kScalars, kLosses, kPairs, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::has_elements(c, kWeights, c[kLosses].elements()) &&
                          shape::is_matrix(c, kPairs, c[kPairs].shape[0], JudgedPair::kNumbers));
  }
  static constexpr const char* kSynopsis =
      "weights = slope(loss, losses); scalars.loss_sum += loss; where loss = judged(kind, beta, pairs, losses) / "
      "scalars.step_labelled";
  static constexpr KernelInfo kInfo = {.op = Op::kPreference,
                                       .pass = Pass::kBackward,
                                       .name = "preference.backward",
                                       .attribute = kAttributeKind<PreferenceAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::out("weights[M]"), contract::scalars_updated(),
                                                     contract::in("losses[M]", Storage::kF64), contract::pairs()},
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
  static constexpr KernelInfo kInfo = {.op = Op::kPreference,
                                       .pass = Pass::kEvaluate,
                                       .name = "preference.evaluate",
                                       .attribute = kAttributeKind<PreferenceAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::out("log_probabilities[P,2]", Storage::kF64),
                                                     contract::scalars_updated(),
                                                     contract::in("losses[M]", Storage::kF64), contract::pairs()},
                                       .shape_fault = fault};
  static PreferenceEvaluateArgs arguments(const RowCall& c) {
    return {.log_probabilities = c.pointer<double>(kLogProbabilities),
            .scalars = c.scalars(kScalars),
            .losses = c.pointer<double>(kLosses),
            .pairs = c.pointer<JudgedPair>(kPairs),
            .M = c[kLosses].elements(),
            .P = c.dimension(kPairs, 0),
            .preference = c.attribute<PreferenceAttribute>()};
  }
};

using PreferenceKernels = TypeList<PreferenceBackward, PreferenceEvaluate>;

}  // namespace reprise
