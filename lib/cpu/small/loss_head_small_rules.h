// Scratch of the loss head on a small core, by shape alone (loss_head_small.cpp).
#pragma once

#include "lib/cpu/small/linear_small_rules.h"

namespace reprise {

// Returns the number of rows whose logits exist at a time.
constexpr uint64_t small_loss_head_rows(uint64_t M, uint64_t V) { return smaller(M, larger(1, 2048 / larger(1, V))); }

// Layout of the scratch, in floats: [ logits of `rows` rows | work area of the largest product ].
struct SmallLossHeadScratch {
  uint64_t rows, products, floats;
};
constexpr SmallLossHeadScratch small_loss_head_scratch(uint64_t M, uint64_t C, uint64_t V, bool backward,
                                                       DType stored) {
  SmallLossHeadScratch scratch = {};
  scratch.rows = small_loss_head_rows(M, V);
  scratch.products = small_columns(scratch.rows * V);
  uint64_t maximum = small_linear_floats(C, V, stored);
  if (backward)
    maximum = larger(maximum, larger(small_linear_floats(V, C, DType::kF32), small_linear_gradient_floats(V)));
  scratch.floats = scratch.products + maximum;
  return scratch;
}

namespace rules {
template <typename A, bool kBackward>
constexpr uint64_t small_loss_head_bytes(const ShapedCall& c) {
  const Tensor& x = c[A::kX];
  return align_up(
      4 *
      small_loss_head_scratch(x.leading_elements(), x.last_dimension(), c[A::kW].shape[0], kBackward, x.dtype).floats);
}
}  // namespace rules

constexpr void add_small_loss_head_rules(BackendRules& rules) {
  rules.of<LossHeadBackward>() = {true, rules::small_loss_head_bytes<LossHeadBackward, true>};
  rules.of<LossHeadForward>() = {true, rules::small_loss_head_bytes<LossHeadForward, false>};
  rules.of<LossHeadEvaluate>() = {true, rules::small_loss_head_bytes<LossHeadEvaluate, false>};
}

}  // namespace reprise
