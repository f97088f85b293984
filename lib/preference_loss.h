// What a pair of answers costs, and the slope of that by the answers' log-probabilities: the formulas of lib/ops/preference.h.
// Here because processors and cards compute the same; each brings its own exp, expm1, log and log1p of f64 as Math. No sum has two products, and
// none that was named before, so that every compiler fuses alike (lib/cpu/vector_level.h).
#pragma once

#include "lib/ops/preference.h"

namespace reprise {

struct PairLoss {
  double loss;       // not divided by the step's pairs; of kOrpo without the losses of whole conversations
  double slope[2];   // by the log-probabilities
  double reward[2];  // of kKto that of the first answer alone
  bool is_right;     // what is preferred has the larger reward
};

// Whether the pair's rows are the micro-batch's.
constexpr bool has_its_rows(const JudgedPair& pair, uint64_t M) {
  const auto is_row = [M](double row) { return row >= 0 && row <= static_cast<double>(M) && static_cast<double>(static_cast<uint64_t>(row)) == row; };
  for (uint32_t i = 0; i < 2; ++i) {
    if (!is_row(pair.first[i]) || !is_row(pair.end[i]) || pair.first[i] > pair.end[i]) return false;
  }
  return is_row(pair.whole) && pair.whole <= pair.first[0];
}

namespace preference {
// 1 / (1 + e^-x)
template <typename Math>
constexpr double sigmoid(double x) {
  const double power = Math::exp(x < 0 ? x : -x);
  return (x < 0 ? power : 1.0) / (1 + power);
}
// log(1 + e^x)
template <typename Math>
constexpr double softplus(double x) {
  return (x > 0 ? x : 0.0) + Math::log1p(Math::exp(x < 0 ? x : -x));
}

template <typename Math>
constexpr PairLoss dpo(const PreferenceAttribute& a, const JudgedPair& pair, const double (&l)[2]) {
  PairLoss out = {};
  for (uint32_t i = 0; i < 2; ++i) out.reward[i] = a.beta * (l[i] - pair.reference[i]);
  const double d = a.beta * ((l[0] - pair.reference[0]) - (l[1] - pair.reference[1]));
  out.loss = softplus<Math>(-d) + a.label_smoothing * d;  // since log(1 + e^d) = d + log(1 + e^-d)
  out.slope[0] = a.beta * (a.label_smoothing - sigmoid<Math>(-d));
  out.slope[1] = -out.slope[0];
  out.is_right = d > 0;
  return out;
}

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

template <typename Math>
constexpr PairLoss kto(const PreferenceAttribute& a, const JudgedPair& pair, double l, double distance) {
  PairLoss out = {};
  out.reward[0] = a.beta * (l - pair.reference[0]);
  const double gain = pair.wish * a.beta * (l - pair.reference[0] - distance), weight = pair.wish > 0 ? a.desirable_weight : a.undesirable_weight;
  out.loss = weight * sigmoid<Math>(-gain);
  out.slope[0] = -weight * a.beta * pair.wish * sigmoid<Math>(gain) * sigmoid<Math>(-gain);
  out.is_right = gain > 0;
  return out;
}
}  // namespace preference

// `distance`: kKto's z.
template <typename Math>
constexpr PairLoss judge_pair(const PreferenceAttribute& a, const JudgedPair& pair, const double (&l)[2], double distance) {
  switch (static_cast<PreferenceKind>(a.kind)) {
    case PreferenceKind::kDpo: return preference::dpo<Math>(a, pair, l);
    case PreferenceKind::kOrpo: return preference::orpo<Math>(a, pair, l);
    case PreferenceKind::kKto: return preference::kto<Math>(a, pair, l[0], distance);
  }
  return {};
}

}  // namespace reprise
