// The loss of a pair of answers, and its derivatives with respect to the answers'
// log-probabilities: the formulas of lib/ops/preference.h. Processors and cards share this code;
// each passes its own exp, expm1, log and log1p of f64 as Math. No sum here has two products, and
// no sum has a product that was stored in a variable before. So every compiler fuses the same
// operations (lib/cpu/vector_level.h).
#pragma once

#include "lib/ops/preference.h"

namespace reprise {

// The result for one pair.
struct PairLoss {
  // The pair's loss, not divided by the number of pairs in the step. For kOrpo it does not include
  // the losses of rows [whole, end[0]).
  double loss;
  double slope[2];   // Derivatives of `loss` with respect to the log-probabilities of the two answers.
  double reward[2];  // Rewards of the two answers; kKto sets only the first.
  // True if the preferred answer has the larger reward; for kKto, if the gain is above 0.
  bool is_right;
};

// True if the pair's row numbers are integers in [0, M] and its ranges are in order.
constexpr bool has_its_rows(const JudgedPair& pair, uint64_t M) {
  const auto is_row = [M](double row) {
    return row >= 0 && row <= static_cast<double>(M) && static_cast<double>(static_cast<uint64_t>(row)) == row;
  };
  for (uint32_t i = 0; i < 2; ++i) {
    if (!is_row(pair.first[i]) || !is_row(pair.end[i]) || pair.first[i] > pair.end[i]) return false;
  }
  return is_row(pair.whole) && pair.whole <= pair.first[0];
}

namespace preference {
// Returns 1 / (1 + e^-x).
template <typename Math>
constexpr double sigmoid(double x) {
  const double power = Math::exp(x < 0 ? x : -x);
  return (x < 0 ? power : 1.0) / (1 + power);
}
// Returns log(1 + e^x).
template <typename Math>
constexpr double softplus(double x) {
  return (x > 0 ? x : 0.0) + Math::log1p(Math::exp(x < 0 ? x : -x));
}

// Returns the DPO loss; l[2] are the answers' log-probabilities.
template <typename Math>
constexpr PairLoss dpo(const PreferenceAttribute& a, const JudgedPair& pair, const double (&l)[2]) {
  PairLoss out = {};
  for (uint32_t i = 0; i < 2; ++i) out.reward[i] = a.beta * (l[i] - pair.reference[i]);
  const double d = a.beta * ((l[0] - pair.reference[0]) - (l[1] - pair.reference[1]));
  out.loss = softplus<Math>(-d) + a.label_smoothing * d;  // log(1 + e^d) = d + log(1 + e^-d)
  out.slope[0] = a.beta * (a.label_smoothing - sigmoid<Math>(-d));
  out.slope[1] = -out.slope[0];
  out.is_right = d > 0;
  return out;
}

// Returns the ORPO loss; l[2] are the answers' log-probabilities.
template <typename Math>
constexpr PairLoss orpo(const PreferenceAttribute& a, const JudgedPair& pair, const double (&l)[2]) {
  PairLoss out = {};
  double odds[2] = {}, slope[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    const double rows = pair.end[i] - pair.first[i], mean = l[i] / rows, rest = -Math::expm1(mean);  // rest: 1 - e^mean
    out.reward[i] = a.beta * mean;
    odds[i] = mean - Math::log(rest);
    slope[i] = 1 / (rest * rows);
  }
  const double d = odds[0] - odds[1], share = -a.beta * sigmoid<Math>(-d);
  out.loss = a.beta * softplus<Math>(-d);
  out.slope[0] = share * slope[0];
  out.slope[1] = -share * slope[1];
  out.is_right = out.reward[0] > out.reward[1];
  return out;
}

// Returns the KTO loss. `l` is the first answer's log-probability; `distance` is z of the formula
// in lib/ops/preference.h.
template <typename Math>
constexpr PairLoss kto(const PreferenceAttribute& a, const JudgedPair& pair, double l, double distance) {
  PairLoss out = {};
  out.reward[0] = a.beta * (l - pair.reference[0]);
  const double gain = pair.wish * a.beta * (l - pair.reference[0] - distance),
               weight = pair.wish > 0 ? a.desirable_weight : a.undesirable_weight;
  out.loss = weight * sigmoid<Math>(-gain);
  out.slope[0] = -weight * a.beta * pair.wish * sigmoid<Math>(gain) * sigmoid<Math>(-gain);
  out.is_right = gain > 0;
  return out;
}
}  // namespace preference

// Returns the loss of a pair, computed as the attribute's kind states. l[2] are the
// log-probabilities of the two answers. `distance` is z of kKto's formula.
template <typename Math>
constexpr PairLoss judge_pair(const PreferenceAttribute& a, const JudgedPair& pair, const double (&l)[2],
                              double distance) {
  switch (static_cast<PreferenceKind>(a.kind)) {
    case PreferenceKind::kDpo: return preference::dpo<Math>(a, pair, l);
    case PreferenceKind::kOrpo: return preference::orpo<Math>(a, pair, l);
    case PreferenceKind::kKto: return preference::kto<Math>(a, pair, l[0], distance);
  }
  return {};
}

}  // namespace reprise
