// Batch-norm in double (Ioffe & Szegedy 2015). The references of convolutions and additions that
// fold a batch-norm use it. The backward formulas are the derivative of the forward; finite
// differences check them.
#pragma once

#include "tests/ref/array.h"

namespace reprise::ref {

struct Moments {
  Array mean;
  Array rstd;
};
struct NormGradients {
  Array dx, dgamma, dbeta;
};

// Returns the moments [C] of the columns of x [M,C].
inline Moments batch_norm_statistics(const Array& x_in, double epsilon) {
  const Array x = rows(x_in);
  const Array mean = xt::mean(x, {0});
  const Array variance = xt::mean(xt::square(x - mean), {0});
  return {mean, 1.0 / xt::sqrt(variance + epsilon)};
}

inline Array batch_norm_forward(const Array& x, const Moments& moments, const Array& gamma, const Array& beta) {
  return (x - moments.mean) * moments.rstd * gamma + beta;
}
// Returns |gamma| rstd (|x| + |mean|) + |beta|: the sum of the terms' absolute values, from which
// the tolerance follows. x and mean count separately, because a kernel may fold the four vectors
// into one scale and one shift.
inline Array batch_norm_forward_magnitude(const Array& x, const Moments& moments, const Array& gamma,
                                          const Array& beta) {
  return (xt::abs(x) + xt::abs(moments.mean)) * moments.rstd * xt::abs(gamma) + xt::abs(beta);
}

inline NormGradients batch_norm_backward(const Array& x_in, const Moments& moments, const Array& gamma,
                                         const Array& dy_in) {
  const Array x = rows(x_in), dy = rows(dy_in);
  const double M = static_cast<double>(x.shape(0));
  const Array normal = (x - moments.mean) * moments.rstd;
  const Array dbeta = xt::sum(dy, {0});
  const Array dgamma = xt::sum(dy * normal, {0});
  const Array dx = gamma * moments.rstd * (dy - dbeta / M - normal * dgamma / M);
  return {like(dx, x_in), dgamma, dbeta};
}
inline NormGradients batch_norm_backward_magnitude(const Array& x_in, const Moments& moments, const Array& gamma,
                                                   const Array& dy_in) {
  const Array x = rows(x_in), dy = xt::abs(rows(dy_in));
  const double M = static_cast<double>(x.shape(0));
  const Array normal = (xt::abs(x) + xt::abs(moments.mean)) * moments.rstd;
  const Array dbeta = xt::sum(dy, {0});
  const Array dgamma = xt::sum(dy * normal, {0});
  const Array dx = xt::abs(gamma) * moments.rstd * (dy + dbeta / M + normal * dgamma / M);
  return {like(dx, x_in), dgamma, dbeta};
}

}  // namespace reprise::ref
