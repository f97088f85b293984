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

// Mean and rstd of argument x, at `moments` and after.
inline void set_moments(CaseDraft& draft, uint32_t x, uint32_t moments, double epsilon = 1e-5) {
  const ref::Moments of_x = ref::batch_norm_statistics(draft.value(x), epsilon);
  draft.value(moments) = as_f32(of_x.mean);
  draft.value(moments + 1) = as_f32(of_x.rstd);
}

// The four vectors of norm(x) from `moments` on; gamma and beta such that about half of norm(x) is negative, that beta alone is not
// near zero, and that neither are the +-gamma + beta of a channel of two rows.
inline void set_norm(CaseDraft& draft, uint32_t x, uint32_t moments) {
  const auto apart = [&](uint32_t i, double least, double spread) {
    for (double& element : draft.value(i)) element = as_f32(std::copysign(least + spread * std::abs(element), element));
  };
  apart(moments + 2, 0.6, 0.6);
  apart(moments + 3, 0.1, 0.3);
  set_moments(draft, x, moments);
}

// norm(x) of argument x, the four vectors beginning at argument `vectors`, and what it would be if all its terms were positive.
inline Array normalised_input(const Oracle& o, uint32_t x, uint32_t vectors) {
  return ref::batch_norm_forward(o.value(x), {o.value(vectors), o.value(vectors + 1)}, o.value(vectors + 2), o.value(vectors + 3));
}
inline Array normalised_input_magnitude(const Oracle& o, uint32_t x, uint32_t vectors) {
  return ref::batch_norm_forward_magnitude(o.value(x), {o.value(vectors), o.value(vectors + 1)}, o.value(vectors + 2),
                                           o.value(vectors + 3));
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
