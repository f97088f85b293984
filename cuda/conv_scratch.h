// Scratch of convolutions: the moments of what they write, and the parts of a weight's gradient.
#pragma once

#include "cuda/product_shape.h"
#include "lib/backend_rules.h"

namespace reprise {

constexpr uint64_t conv_output_pixels(const ConvShape& s) { return uint64_t{s.N} * s.P * s.Q; }
constexpr uint64_t conv_window_elements(const ConvShape& s) { return uint64_t{s.window.kernel_h} * s.window.kernel_w * s.C; }

constexpr ProductShape conv_forward_product(const ConvShape& s) { return {conv_output_pixels(s), s.K, conv_window_elements(s)}; }
constexpr ProductShape conv_weight_product(const ConvShape& s) { return {s.K, conv_window_elements(s), conv_output_pixels(s)}; }

namespace rules {
constexpr uint64_t cuda_conv_forward_scratch(const ShapedCall& c) {
  using A = ConvForward;  // the folded kernel's arguments begin like these
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  return c.has(A::kMeanOfY) ? moments_scratch_bytes(conv_forward_product(s)) : 0;
}
constexpr uint64_t cuda_conv_backward_weight_scratch(const ShapedCall& c) {
  using A = ConvBackwardWeight;  // as above
  const ProductShape shape = conv_weight_product(conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>()));
  return split_scratch_bytes(shape, product_side(shape));
}
}  // namespace rules

constexpr void add_cuda_conv_rules(BackendRules& table) {
  table.have(ConvKernels{});
  table.of<ConvForward>().scratch_bytes = rules::cuda_conv_forward_scratch;
  table.of<ConvBackwardWeight>().scratch_bytes = rules::cuda_conv_backward_weight_scratch;
  table.of<NormConvForward>().scratch_bytes = rules::cuda_conv_forward_scratch;
  table.of<NormConvBackwardWeight>().scratch_bytes = rules::cuda_conv_backward_weight_scratch;
}

}  // namespace reprise
