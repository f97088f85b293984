// Which convolutions run by tensor cores, which pixel by pixel, and their scratch: rounded weights, the moments of what they write, the parts of a
// weight's gradient.
#pragma once

#include "cuda/batch_norm_rules.h"
#include "cuda/product_shape.h"
#include "lib/backend_rules.h"

namespace reprise {

constexpr uint64_t conv_output_pixels(const ConvShape& s) { return uint64_t{s.N} * s.P * s.Q; }
constexpr uint64_t conv_window_elements(const ConvShape& s) { return uint64_t{s.window.kernel_h} * s.window.kernel_w * s.group_inputs(); }

// Convolutions in groups are no product (conv_groups.h).
constexpr bool is_in_groups(const ConvShape& s) { return s.window.groups > 1; }

// Of such a weight's gradient: parts of the output pixels, which are summed by themselves.
constexpr DepthSplit conv_group_parts(const ConvShape& s) {
  constexpr uint64_t kMostParts = 16, kLeastPixels = 256;
  const uint64_t pixels = conv_output_pixels(s), even = whole_pieces(pixels, kMostParts), size = even < kLeastPixels ? kLeastPixels : even;
  return {size, static_cast<uint32_t>(whole_pieces(pixels, size))};
}
constexpr uint64_t conv_group_parts_bytes(const ConvShape& s) { return align_up(conv_group_parts(s).count * s.K * conv_window_elements(s) * sizeof(float)); }

constexpr ProductShape conv_forward_product(const ConvShape& s) { return {conv_output_pixels(s), s.K, conv_window_elements(s)}; }
constexpr ProductShape conv_weight_product(const ConvShape& s) { return {s.K, conv_window_elements(s), conv_output_pixels(s)}; }

// Whether operands of chunks (conv_chunks.h) serve: of x and w, and where dy is an operand of its channels too. Places are counted in 32 bits, and
// taps by bits.
constexpr bool conv_chunks_fit(DType stored, const ConvShape& s) {
  constexpr uint64_t kMost = 0x7fff0000u;
  const uint64_t elements = stored == DType::kBf16 ? 8 : 4;
  const uint64_t x = uint64_t{s.N} * s.H * s.W * (s.C / elements), y = conv_output_pixels(s) * (s.K / elements),
                 w = s.K * (conv_window_elements(s) / elements);
  return are_chunks(s.C, stored) && x < kMost && y < kMost && w < kMost && s.window.kernel_h + s.window.kernel_w < 32 &&
         s.window.dilation_h == 1 && s.window.dilation_w == 1;
}
constexpr bool conv_forward_uses_mma(DType stored, const ConvShape& s) {
  return stored == DType::kBf16 && conv_chunks_fit(stored, s);
}
constexpr bool conv_backward_uses_mma(DType stored, const ConvShape& s) { return conv_forward_uses_mma(stored, s) && are_chunks(s.K); }
// Without tensor cores weights are read as they lie.
constexpr bool conv_forward_takes_chunks(DType stored, DType weights, const ConvShape& s) {
  return (stored == DType::kBf16 || weights == DType::kF32) && conv_chunks_fit(stored, s);
}
constexpr bool conv_backward_takes_chunks(DType stored, DType weights, const ConvShape& s) {
  return conv_forward_takes_chunks(stored, weights, s) && are_chunks(s.K, stored);
}

constexpr TileSides conv_forward_tile(DType stored, DType weights, const ConvShape& s, ProductMath math, CardSize card) {
  const ProductShape product = conv_forward_product(s);
  if (conv_forward_uses_mma(stored, s)) return mma_tile(product);
  return conv_forward_takes_chunks(stored, weights, s) ? chunk_tile(product, math, card) : simt_tile(product, card);
}
constexpr TileSides conv_weight_tile(DType stored, const ConvShape& s, ProductMath math, CardSize card) {
  const ProductShape product = conv_weight_product(s);
  if (conv_backward_uses_mma(stored, s)) return mma_tile(product);
  return conv_backward_takes_chunks(stored, stored, s) ? chunk_tile(product, math, card) : simt_tile(product, card);
}

// Weights that are rounded first; a forward's moments follow them.
constexpr uint64_t conv_weights_scratch_bytes(bool uses_mma, DType weights, const ConvShape& s) {
  return uses_mma && weights != DType::kBf16 ? align_up(stored_bytes(DType::kBf16, s.K * conv_window_elements(s))) : 0;
}

namespace rules {
template <CardSize kCard, ProductMath kMath>
constexpr uint64_t cuda_conv_forward_scratch(const ShapedCall& c) {
  using A = ConvForward;  // the folded kernel's arguments begin like these
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  const DType stored = c[A::kX].dtype;
  if (is_in_groups(s)) return c.has(A::kMeanOfY) ? cuda_batch_norm_statistics_scratch_bytes(conv_output_pixels(s), s.K) : 0;
  return conv_weights_scratch_bytes(conv_forward_uses_mma(stored, s), c[A::kW].dtype, s) +
         (c.has(A::kMeanOfY)
              ? moments_scratch_bytes(conv_forward_product(s), conv_forward_tile(stored, c[A::kW].dtype, s, kMath, kCard))
              : 0);
}
constexpr uint64_t cuda_conv_backward_data_scratch(const ShapedCall& c) {
  using A = ConvBackwardData;  // and the transposed convolution
  static_assert(uint32_t{A::kDx} == ConvTransposeForward::kY && uint32_t{A::kDy} == ConvTransposeForward::kX && uint32_t{A::kW} == ConvTransposeForward::kW);
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  if (is_in_groups(s)) return 0;
  return conv_weights_scratch_bytes(conv_backward_uses_mma(c[A::kDy].dtype, s), c[A::kW].dtype, s);
}
template <CardSize kCard, ProductMath kMath>
constexpr uint64_t cuda_conv_backward_weight_scratch(const ShapedCall& c) {
  using A = ConvBackwardWeight;  // as above
  const ConvShape s = conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>());
  if (is_in_groups(s)) return conv_group_parts_bytes(s);
  return split_scratch_bytes(conv_weight_product(s), conv_weight_tile(c[A::kX].dtype, s, kMath, kCard), kCard);
}
}  // namespace rules

template <CardSize kCard, ProductMath kMath>
constexpr void add_cuda_conv_rules(BackendRules& table) {
  table.have(ConvKernels{});
  table.have(ConvTransposeKernels{});
  table.of<ConvTransposeForward>().scratch_bytes = rules::cuda_conv_backward_data_scratch;
  table.of<ConvForward>().scratch_bytes = rules::cuda_conv_forward_scratch<kCard, kMath>;
  table.of<ConvBackwardData>().scratch_bytes = rules::cuda_conv_backward_data_scratch;
  table.of<ConvBackwardWeight>().scratch_bytes = rules::cuda_conv_backward_weight_scratch<kCard, kMath>;
  table.of<NormConvForward>().scratch_bytes = rules::cuda_conv_forward_scratch<kCard, kMath>;
  table.of<NormConvBackwardWeight>().scratch_bytes = rules::cuda_conv_backward_weight_scratch<kCard, kMath>;
}

}  // namespace reprise
