// Softmax cross-entropy over a linear layer in double, with the whole logits matrix.
// Here as the oracle of loss_head; the backward is judged by finite differences of the loss.
// It must not know chunks.
#pragma once

#include <cmath>

#include "lib/plan.h"
#include "tests/ref/linear.h"

namespace reprise::ref {

struct LossHead {
  Array p;                  // [M,V] softmax
  Array row_loss;           // [M]; 0 without a label
  Array sharpness;          // [M]: 1 + the row's largest sum of |x||w| + |b|, + |lse|
  double sum = 0;           // of the rows' losses
  double sum_magnitude = 0;
  uint64_t labelled = 0, correct = 0;
  double smallest_margin = std::numeric_limits<double>::infinity();  // between the two largest logits of a row, in units of sharpness

  double mean() const { return labelled == 0 ? 0.0 : sum / static_cast<double>(labelled); }
};

inline LossHead loss_head(const Array& x, const Array& w, const Array* bias, const Array& labels) {
  const Array logits_out = linear_forward(x, w, bias, false);
  const Array absolute_bias = bias != nullptr ? magnitudes(*bias) : Array();
  const Array sizes_out = linear_forward(magnitudes(x), magnitudes(w), bias != nullptr ? &absolute_bias : nullptr, false);
  const auto logits = view<2>(logits_out), sizes = view<2>(sizes_out);
  const size_t M = logits.shape(0), V = logits.shape(1);
  LossHead out;
  out.p = zeros({M, V});
  out.row_loss = out.sharpness = zeros({M});
  for (size_t m = 0; m < M; ++m) {
    size_t best = 0;
    for (size_t v = 1; v < V; ++v) best = logits(m, v) > logits(m, best) ? v : best;
    double sum = 0, size = 0, second = -std::numeric_limits<double>::infinity();
    for (size_t v = 0; v < V; ++v) {
      sum += std::exp(logits(m, v) - logits(m, best));
      size = std::max(size, sizes(m, v));
      if (v != best) second = std::max(second, logits(m, v));
    }
    const double lse = logits(m, best) + std::log(sum);
    for (size_t v = 0; v < V; ++v) out.p(m, v) = std::exp(logits(m, v) - lse);
    out.sharpness(m) = 1 + size + std::abs(lse);
    if (labels(m) == kIgnoredLabel) continue;
    const auto label = static_cast<size_t>(labels(m));
    out.row_loss(m) = lse - logits(m, label);
    out.sum += out.row_loss(m);
    out.sum_magnitude += out.sharpness(m);
    out.labelled += 1;
    out.correct += best == label;
    if (size > 0) out.smallest_margin = std::min(out.smallest_margin, (logits(m, best) - second) / out.sharpness(m));
  }
  return out;
}

struct LossHeadGradients {
  Array dx, dw, db;
  Array dx_magnitude, dw_magnitude, db_magnitude;
};

inline LossHeadGradients loss_head_backward(const Array& x, const Array& w, const Array* bias, const Array& labels,
                                            double micro_batches) {
  const LossHead head = loss_head(x, w, bias, labels);
  Array d = zeros_like(head.p), size = zeros_like(head.p);
  for (size_t m = 0; m < d.shape(0); ++m) {
    if (labels(m) == kIgnoredLabel) continue;
    const double share = 1.0 / (static_cast<double>(head.labelled) * micro_batches);
    for (size_t v = 0; v < d.shape(1); ++v) {
      const double target = v == static_cast<size_t>(labels(m)) ? 1.0 : 0.0;
      d(m, v) = (head.p(m, v) - target) * share;
      size(m, v) = (head.p(m, v) * head.sharpness(m) + target) * share;
    }
  }
  return {product(d, w),       product(transposed(d), x),
          xt::sum(d, {0}),     product(size, magnitudes(w)),
          product(transposed(size), magnitudes(x)), xt::sum(size, {0})};
}

}  // namespace reprise::ref
