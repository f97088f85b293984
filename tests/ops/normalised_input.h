// Inputs that batch-norm or layer-norm reads: their data, and norm(x) in double.
// Here because batch-norm is folded into convolutions (conv.cpp) as well as standing alone (batch_norm.cpp).
#pragma once

#include <cmath>

#include "tests/ops/op_family.h"
#include "tests/ref/norm.h"

namespace reprise::test {

// Offset or constant, where the case asks for it.
inline void shape_norm_input(CaseDraft& draft, uint32_t x) {
  for (double& element : draft.value(x)) {
    if (draft.c.data == CaseValues::kOffset) element = as_f32(100 + element);
    if (draft.c.data == CaseValues::kConstant) element = 3.25;
  }
}

// K's mean and rstd of its x.
template <typename K>
void set_moments(CaseDraft& draft, double epsilon = 1e-5) {
  const ref::Moments of_x = ref::batch_norm_statistics(draft.value(K::kX), epsilon);
  draft.value(K::kMean) = as_f32(of_x.mean);
  draft.value(K::kRstd) = as_f32(of_x.rstd);
}

// K's four vectors of norm(x); gamma and beta such that about half of norm(x) is negative, that beta alone is not near zero, and that
// neither are the +-gamma + beta of a channel of two rows.
template <typename K>
void set_norm(CaseDraft& draft) {
  const auto apart = [&](uint32_t i, double least, double spread) {
    for (double& element : draft.value(i)) element = as_f32(std::copysign(least + spread * std::abs(element), element));
  };
  apart(K::kGamma, 0.6, 0.6);
  apart(K::kBeta, 0.1, 0.3);
  set_moments<K>(draft);
}

// K's norm(x), and what it would be if all its terms were positive.
template <typename K>
Array normalised_input(const Oracle& o) {
  return ref::batch_norm_forward(o.value(K::kX), {o.value(K::kMean), o.value(K::kRstd)}, o.value(K::kGamma), o.value(K::kBeta));
}
template <typename K>
Array normalised_input_magnitude(const Oracle& o) {
  return ref::batch_norm_forward_magnitude(o.value(K::kX), {o.value(K::kMean), o.value(K::kRstd)}, o.value(K::kGamma), o.value(K::kBeta));
}

// Mean and rstd of x [..., C].
struct ExpectedStatistics {
  Expected mean, rstd;
};
inline ExpectedStatistics expected_statistics(const Array& x, double epsilon) {
  const ref::Moments moments = ref::batch_norm_statistics(x, epsilon);
  const double M = static_cast<double>(x.size()) / static_cast<double>(moments.mean.size());
  return {{moments.mean, xt::mean(ref::magnitudes(ref::rows(x)), {0}), M}, {moments.rstd, moments.rstd, M}};
}

}  // namespace reprise::test
