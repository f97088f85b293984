// The split of layer-norm's parameter gradients over rows, and its scratch. Planner, checker and
// kernel share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

constexpr Partition layer_norm_chunks(uint64_t M) { return split_at_most(M, 32, 32); }

// Returns the scratch bytes of two sums, dy * xhat and dy: for each sum one double and one float
// for each chunk and channel.
constexpr uint64_t layer_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return layer_norm_chunks(M).count() * 2 * C * (sizeof(double) + sizeof(float));
}

// Returns the scratch bytes of RMS-norm, which has only the first of the two sums.
constexpr uint64_t rms_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return layer_norm_backward_scratch_bytes(M, C) / 2;
}

constexpr void add_layer_norm_rules(BackendRules& rules) {
  rules.of<RmsNormBackward>().scratch_bytes = [](const ShapedCall& c) {
    return rms_norm_backward_scratch_bytes(c[RmsNormBackward::kRstd].elements(), c[RmsNormBackward::kGamma].elements());
  };
  rules.of<LayerNormBackward>().scratch_bytes = [](const ShapedCall& c) {
    const Tensor& x = c[LayerNormBackward::kX];
    return layer_norm_backward_scratch_bytes(x.leading_elements(), x.last_dimension());
  };
}

}  // namespace reprise
