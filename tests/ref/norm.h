// Batch-norm and layer-norm in double (Ioffe & Szegedy 2015; Ba et al. 2016).
// Here as the oracle of the normalisations; backward formulas are the derivative of forward, judged by finite differences.
// It must not know how kernels fold, block or thread.
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

// Batch-norm reduces over the rows of [M,C]; its moments have shape [C].
inline Moments batch_norm_statistics(const Array& x_in, double epsilon) {
  const Array x = rows(x_in);
  const Array mean = xt::mean(x, {0});
  const Array variance = xt::mean(xt::square(x - mean), {0});
  return {mean, 1.0 / xt::sqrt(variance + epsilon)};
}

inline Array batch_norm_forward(const Array& x, const Moments& moments, const Array& gamma, const Array& beta) {
  return (x - moments.mean) * moments.rstd * gamma + beta;
}
// |gamma| rstd (|x| + |mean|) + |beta|: a kernel may fold the four vectors into one scale and one shift.
inline Array batch_norm_forward_magnitude(const Array& x, const Moments& moments, const Array& gamma, const Array& beta) {
  return (xt::abs(x) + xt::abs(moments.mean)) * moments.rstd * xt::abs(gamma) + xt::abs(beta);
}

inline NormGradients batch_norm_backward(const Array& x_in, const Moments& moments, const Array& gamma, const Array& dy_in) {
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

// Layer-norm reduces over the columns of [M,C]; its moments have shape [M].
inline Array as_column(Array a) {
  a.reshape({a.size(), size_t{1}});
  return a;
}

inline Moments layer_norm_statistics(const Array& x, double epsilon) {
  const Array mean = xt::mean(x, {1});
  const Array centred = x - as_column(mean);
  const Array variance = xt::mean(xt::square(centred), {1});
  return {mean, 1.0 / xt::sqrt(variance + epsilon)};
}

inline Array layer_norm_normal(const Array& x, const Moments& moments) {
  const Array mean = as_column(moments.mean);
  const Array rstd = as_column(moments.rstd);
  return (x - mean) * rstd;
}
inline Array layer_norm_normal_magnitude(const Array& x, const Moments& moments) {
  const Array mean = as_column(moments.mean);
  const Array rstd = as_column(moments.rstd);
  return (xt::abs(x) + xt::abs(mean)) * rstd;
}

inline NormGradients layer_norm_backward_from(const Array& normal, const Array& rstd_in, const Array& gamma, const Array& dy,
                                              double sign) {
  const double C = static_cast<double>(dy.shape(1));
  const Array rstd = as_column(rstd_in);
  const Array g = dy * gamma;
  const Array sum_g = as_column(xt::sum(g, {1}));
  const Array sum_gn = as_column(xt::sum(g * normal, {1}));
  const Array dx = rstd * (g + sign * (sum_g / C + normal * sum_gn / C));
  return {dx, xt::sum(dy * normal, {0}), xt::sum(dy, {0})};
}
inline NormGradients layer_norm_backward(const Array& x, const Moments& moments, const Array& gamma, const Array& dy) {
  return layer_norm_backward_from(layer_norm_normal(x, moments), moments.rstd, gamma, dy, -1.0);
}
inline NormGradients layer_norm_backward_magnitude(const Array& x, const Moments& moments, const Array& gamma, const Array& dy) {
  return layer_norm_backward_from(layer_norm_normal_magnitude(x, moments), moments.rstd, magnitudes(gamma), magnitudes(dy), 1.0);
}

}  // namespace reprise::ref
