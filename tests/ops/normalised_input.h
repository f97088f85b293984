// Inputs of batch-norm and layer-norm: their data, and norm(x) in double. Included by
// batch_norm.cpp and layer_norm.cpp, and by conv.cpp for convolutions that fold batch-norm.
#pragma once

#include <cmath>

#include "tests/ops/op_family.h"
#include "tests/ref/norm.h"

namespace reprise::test {

// Sets x as the kind of the case's data requires: values around 100 (kOffset), or a constant
// (kConstant). Does nothing for other kinds.
inline void shape_norm_input(CaseDraft& draft, uint32_t x) {
  for (double& element : draft.value(x)) {
    if (draft.c.data == CaseValues::kOffset) element = as_f32(100 + element);
    if (draft.c.data == CaseValues::kConstant) element = 3.25;
  }
}

// Sets K's mean and rstd to the statistics of its x.
template <typename K>
void set_moments(CaseDraft& draft, double epsilon = 1e-5) {
  const ref::Moments of_x = ref::batch_norm_statistics(draft.value(K::kX), epsilon);
  draft.value(K::kMean) = as_f32(of_x.mean);
  draft.value(K::kRstd) = as_f32(of_x.rstd);
}

// Sets K's mean, rstd, gamma and beta, so that about half of norm(x) is negative. Keeps beta, beta
// + gamma and beta - gamma away from zero, because these are the values of norm(x) if a channel has
// one or two rows.
template <typename K>
void set_norm(CaseDraft& draft) {
  const auto apart = [&](uint32_t i, double minimum, double spread) {
    for (double& element : draft.value(i))
      element = as_f32(std::copysign(minimum + spread * std::abs(element), element));
  };
  apart(K::kGamma, 0.6, 0.6);
  apart(K::kBeta, 0.1, 0.3);
  set_moments<K>(draft);
}

// Returns norm(x) for the arguments of K. normalised_input_magnitude() returns the sum of the
// absolute values of the same terms, from which the tolerance follows.
template <typename K>
Array normalised_input(const Oracle& o) {
  return ref::batch_norm_forward(o.value(K::kX), {o.value(K::kMean), o.value(K::kRstd)}, o.value(K::kGamma),
                                 o.value(K::kBeta));
}
template <typename K>
Array normalised_input_magnitude(const Oracle& o) {
  return ref::batch_norm_forward_magnitude(o.value(K::kX), {o.value(K::kMean), o.value(K::kRstd)}, o.value(K::kGamma),
                                           o.value(K::kBeta));
}

// Expected mean and rstd of each channel of x [..., C].
struct ExpectedStatistics {
  Expected mean, rstd;
};
inline ExpectedStatistics expected_statistics(const Array& x, double epsilon) {
  const ref::Moments moments = ref::batch_norm_statistics(x, epsilon);
  const double M = static_cast<double>(x.size()) / static_cast<double>(moments.mean.size());
  return {{moments.mean, xt::mean(ref::magnitudes(ref::rows(x)), {0}), M}, {moments.rstd, moments.rstd, M}};
}

}  // namespace reprise::test
