// GELU and the optimizers in double.
// Here as the oracle of gelu, sgd and adamw; relu, add and copy need none beyond a line.
// It must not know vector widths.
#pragma once

#include <cmath>
#include <numbers>

#include "tests/ref/array.h"

namespace reprise::ref {

// Hendrycks & Gimpel 2016. x * Phi(x), or its tanh approximation (GPT-2's gelu_new).
inline double gelu(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double inner_slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  const double cosh = std::cosh(std::min(std::abs(inner), 300.0));
  return 0.5 * (1 + std::tanh(inner)) + 0.5 * x * inner_slope / (cosh * cosh);
}
// (1 + t) cancels for negative x, and (1 - t^2) for large |x|: both are rounded at the size of 1.
inline double gelu_slope_magnitude(double x, bool tanh_form) {
  const double inner_slope = tanh_form ? 1 + 3 * 0.044715 * x * x : 1.0;
  return 1 + std::abs(x) * inner_slope;
}

struct UpdateStep {
  double learning_rate, clip_factor;
  double weight_decay, momentum, beta1, beta2, epsilon;
  bool nesterov;
  double step;  // from 1
};
// Value after the update, and the size of the terms it was made from.
struct UpdatedElement {
  double p, m, v;
  double p_magnitude, m_magnitude, v_magnitude;
};

// torch.optim.SGD without dampening.
inline UpdatedElement sgd(const UpdateStep& u, double p, double m, double gradient) {
  const double g = u.clip_factor * gradient + u.weight_decay * p;
  const double g_magnitude = std::abs(u.clip_factor * gradient) + std::abs(u.weight_decay * p);
  UpdatedElement out{};
  out.m = u.momentum * m + g;
  out.m_magnitude = std::abs(u.momentum * m) + g_magnitude;
  out.p = p - u.learning_rate * (u.nesterov ? g + u.momentum * out.m : out.m);
  out.p_magnitude = std::abs(p) + u.learning_rate * (g_magnitude + out.m_magnitude);
  return out;
}

// torch.optim.AdamW (Loshchilov & Hutter 2019), no amsgrad.
inline UpdatedElement adamw(const UpdateStep& u, double p, double m, double v, double gradient) {
  const double g = u.clip_factor * gradient;
  UpdatedElement out{};
  out.m = u.beta1 * m + (1 - u.beta1) * g;
  out.m_magnitude = std::abs(u.beta1 * m) + std::abs((1 - u.beta1) * g);
  out.v = u.beta2 * v + (1 - u.beta2) * g * g;
  out.v_magnitude = out.v;
  const double mean = out.m / (1 - std::pow(u.beta1, u.step));
  const double root = std::sqrt(out.v / (1 - std::pow(u.beta2, u.step))) + u.epsilon;
  out.p = p - u.learning_rate * u.weight_decay * p - u.learning_rate * mean / root;
  out.p_magnitude = std::abs(p) + u.learning_rate * out.m_magnitude / (1 - std::pow(u.beta1, u.step)) / root;
  return out;
}

}  // namespace reprise::ref
