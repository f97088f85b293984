// Causal multi-head attention in double, with the whole T x T matrix and the derivative of softmax written out.
// Here as the oracle of attention; the backward is judged by finite differences of the forward.
// It must not know tiles, running maxima or the delta trick.
#pragma once

#include <cmath>

#include "tests/ref/array.h"

namespace reprise::ref {

// One head of one sequence: [T,D] matrices, and the factors of its dropout mask [T,T].
struct Head {
  Array q, k, v, mask;
  size_t T() const { return q.shape(0); }
  size_t D() const { return q.shape(1); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(D())); }
};

inline Head head_of(const Array& qkv, const Array& mask, size_t heads, size_t b, size_t h) {
  const size_t T = qkv.shape(1), C = qkv.shape(2) / 3, D = C / heads;
  const auto part = [&](size_t which) -> Array {
    return xt::view(qkv, b, xt::all(), xt::range(which * C + h * D, which * C + (h + 1) * D));
  };
  Head head{part(0), part(1), part(2), Array({T, T}, 1.0)};
  if (mask.size() > 1) head.mask = xt::view(mask, b, h, xt::all(), xt::all());
  return head;
}

struct Weights {
  Array p;          // [T,T], softmax over s <= t, before dropout
  Array lse;        // [T]
  Array sharpness;  // [T]: 1 + the largest sum of |q||k| / sqrt(D) + |lse|: how much a rounding of the scores weighs in p
};

inline Weights attention_weights(const Head& head) {
  const size_t T = head.T(), D = head.D();
  Weights out{zeros({T, T}), zeros({T}), zeros({T})};
  const auto q = view<2>(head.q), k = view<2>(head.k);
  auto p = view<2>(out.p);
  for (size_t t = 0; t < T; ++t) {
    double largest = -std::numeric_limits<double>::infinity(), magnitude = 0;
    for (size_t s = 0; s <= t; ++s) {
      double score = 0, terms = 0;
      for (size_t d = 0; d < D; ++d) {
        score += q(t, d) * k(s, d);
        terms += std::abs(q(t, d) * k(s, d));
      }
      p(t, s) = score * head.scale();
      largest = std::max(largest, p(t, s));
      magnitude = std::max(magnitude, terms * head.scale());
    }
    double sum = 0;
    for (size_t s = 0; s <= t; ++s) sum += std::exp(p(t, s) - largest);
    out.lse(t) = largest + std::log(sum);
    for (size_t s = 0; s <= t; ++s) p(t, s) = std::exp(p(t, s) - out.lse(t));
    out.sharpness(t) = 1 + magnitude + std::abs(out.lse(t));
  }
  return out;
}

struct AttentionResult {
  Array y, lse;                       // [B,T,C], [B,heads,T]
  Array y_magnitude, lse_magnitude;
};

// mask: [B,heads,T,T] of dropout factors, or one element for none.
inline AttentionResult attention_forward(const Array& qkv, const Array& mask, size_t heads) {
  const size_t B = qkv.shape(0), T = qkv.shape(1), C = qkv.shape(2) / 3, D = C / heads;
  AttentionResult out{zeros({B, T, C}), zeros({B, heads, T}), zeros({B, T, C}), zeros({B, heads, T})};
  auto y = view<3>(out.y), y_magnitude = view<3>(out.y_magnitude);
  for (size_t b = 0; b < B; ++b)
    for (size_t h = 0; h < heads; ++h) {
      const Head head = head_of(qkv, mask, heads, b, h);
      const Weights weights = attention_weights(head);
      const auto p = view<2>(weights.p), factor = view<2>(head.mask), v = view<2>(head.v);
      for (size_t t = 0; t < T; ++t) {
        out.lse(b, h, t) = weights.lse(t);
        out.lse_magnitude(b, h, t) = weights.sharpness(t);
        for (size_t s = 0; s <= t; ++s)
          for (size_t d = 0; d < D; ++d) {
            y(b, t, h * D + d) += factor(t, s) * p(t, s) * v(s, d);
            y_magnitude(b, t, h * D + d) += factor(t, s) * p(t, s) * std::abs(v(s, d)) * weights.sharpness(t);
          }
      }
    }
  return out;
}

struct AttentionGradient {
  Array dqkv, magnitude;
};

// `stored_y`: the y that the softmax's derivative is to use, where it is not the exact one because it was rounded to bf16.
inline AttentionGradient attention_backward(const Array& qkv, const Array& mask, const Array& dy_in, size_t heads,
                                            const Array* stored_y = nullptr) {
  const size_t B = qkv.shape(0), T = qkv.shape(1), C = qkv.shape(2) / 3, D = C / heads;
  AttentionGradient out{zeros({B, T, 3 * C}), zeros({B, T, 3 * C})};
  auto dqkv = view<3>(out.dqkv), magnitude = view<3>(out.magnitude);
  const auto dy = view<3>(dy_in);
  for (size_t b = 0; b < B; ++b)
    for (size_t h = 0; h < heads; ++h) {
      const Head head = head_of(qkv, mask, heads, b, h);
      const Weights weights = attention_weights(head);
      const auto p = view<2>(weights.p), factor = view<2>(head.mask);
      const auto q = view<2>(head.q), k = view<2>(head.k), v = view<2>(head.v);
      const double scale = head.scale();
      std::vector<double> dp(T), dp_magnitude(T);
      for (size_t t = 0; t < T; ++t) {
        double dot = 0, dot_magnitude = 0;  // sum over s of p dp: the row's share of the softmax derivative
        for (size_t s = 0; s <= t; ++s) {
          dp[s] = dp_magnitude[s] = 0;
          for (size_t d = 0; d < D; ++d) {
            const double term = factor(t, s) * dy(b, t, h * D + d) * v(s, d);
            dp[s] += term;
            dp_magnitude[s] += std::abs(term);
          }
          dot += p(t, s) * dp[s];
          dot_magnitude += p(t, s) * dp_magnitude[s];
        }
        if (stored_y != nullptr) {
          dot = 0;
          for (size_t d = 0; d < D; ++d) dot += dy(b, t, h * D + d) * (*stored_y)(b, t, h * D + d);
        }
        for (size_t s = 0; s <= t; ++s) {
          const double ds = p(t, s) * (dp[s] - dot) * scale;
          const double ds_magnitude = p(t, s) * (dp_magnitude[s] + dot_magnitude) * weights.sharpness(t) * scale;
          for (size_t d = 0; d < D; ++d) {
            const size_t i = h * D + d;
            const double from_y = factor(t, s) * p(t, s) * dy(b, t, i);
            dqkv(b, t, i) += ds * k(s, d);
            dqkv(b, s, C + i) += ds * q(t, d);
            dqkv(b, s, 2 * C + i) += from_y;
            magnitude(b, t, i) += ds_magnitude * std::abs(k(s, d));
            magnitude(b, s, C + i) += ds_magnitude * std::abs(q(t, d));
            magnitude(b, s, 2 * C + i) += std::abs(from_y) * weights.sharpness(t);
          }
        }
      }
    }
  return out;
}

}  // namespace reprise::ref
