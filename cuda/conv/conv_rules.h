// Selects the convolutions that run on tensor cores and the convolutions that run pixel by pixel.
// Computes their scratch: rounded weights, moments of the output, and parts of a weight's gradient.
#pragma once

#include "cuda/gemm/product_shape.h"
#include "cuda/norm/batch_norm_rules.h"
#include "lib/backend_rules.h"

namespace reprise {

constexpr uint64_t conv_output_pixels(const ConvShape& s) { return uint64_t{s.N} * s.P * s.Q; }
constexpr uint64_t conv_window_elements(const ConvShape& s) {
  return uint64_t{s.window.kernel_h} * s.window.kernel_w * s.group_inputs();
}

// True if the convolution is in groups and so is not computed as a product (conv_groups.h).
constexpr bool is_in_groups(const ConvShape& s) { return s.window.groups > 1; }

// Splits the output pixels into parts. The gradient of a grouped convolution's weight is summed for
// each part separately.
constexpr DepthSplit conv_group_parts(const ConvShape& s) {
  constexpr uint64_t kMaxParts = 16, kMinPixels = 256;
  const uint64_t pixels = conv_output_pixels(s), even = whole_pieces(pixels, kMaxParts),
                 size = even < kMinPixels ? kMinPixels : even;
  return {size, static_cast<uint32_t>(whole_pieces(pixels, size))};
}
constexpr uint64_t conv_group_parts_bytes(const ConvShape& s) {
  return align_up(conv_group_parts(s).count * s.K * conv_window_elements(s) * sizeof(float));
}

constexpr ProductShape conv_forward_product(const ConvShape& s) {
  return {conv_output_pixels(s), s.K, conv_window_elements(s)};
}
constexpr ProductShape conv_weight_product(const ConvShape& s) {
  return {s.K, conv_window_elements(s), conv_output_pixels(s)};
}

// True if x and w can be operands in chunks (conv_chunks.h). C must be whole chunks, and the
// indices of the chunks of x, y and w must fit 31 bits. The lines and columns of taps must together
// fit the bits of a 32-bit word, and there must be no dilation. For dy as an operand,
// conv_backward_uses_mma() and conv_backward_takes_chunks() also check the output channels.
constexpr bool conv_chunks_fit(DType stored, const ConvShape& s) {
  constexpr uint64_t kMax = 0x7fff0000u;
  const uint64_t elements = stored == DType::kBf16 ? 8 : 4;
  const uint64_t x = uint64_t{s.N} * s.H * s.W * (s.C / elements), y = conv_output_pixels(s) * (s.K / elements),
                 w = s.K * (conv_window_elements(s) / elements);
  return are_chunks(s.C, stored) && x < kMax && y < kMax && w < kMax && s.window.kernel_h + s.window.kernel_w < 32 &&
         s.window.dilation_h == 1 && s.window.dilation_w == 1;
}
constexpr bool conv_forward_uses_mma(DType stored, const ConvShape& s) {
  return stored == DType::kBf16 && conv_chunks_fit(stored, s);
}
constexpr bool conv_backward_uses_mma(DType stored, const ConvShape& s) {
  return conv_forward_uses_mma(stored, s) && are_chunks(s.K);
}
// True if the forward reads x and w in chunks. With f32 activations, the weights are not converted,
// so they must also be f32.
constexpr bool conv_forward_takes_chunks(DType stored, DType weights, const ConvShape& s) {
  return (stored == DType::kBf16 || weights == DType::kF32) && conv_chunks_fit(stored, s);
}
constexpr bool conv_backward_takes_chunks(DType stored, DType weights, const ConvShape& s) {
  return conv_forward_takes_chunks(stored, weights, s) && are_chunks(s.K, stored);
}

constexpr TileSides conv_forward_tile(DType stored, DType weights, const ConvShape& s, ProductMath math,
                                      CardSize card) {
  const ProductShape product = conv_forward_product(s);
  if (conv_forward_uses_mma(stored, s)) return mma_tile(product);
  return conv_forward_takes_chunks(stored, weights, s) ? chunk_tile(product, math, card) : simt_tile(product, card);
}
constexpr TileSides conv_weight_tile(DType stored, const ConvShape& s, ProductMath math, CardSize card) {
  const ProductShape product = conv_weight_product(s);
  if (conv_backward_uses_mma(stored, s)) return mma_tile(product);
  return conv_backward_takes_chunks(stored, stored, s) ? chunk_tile(product, math, card) : simt_tile(product, card);
}

// Returns the bytes of the copy of the weights in bf16; 0 if the kernel needs no copy. In a
// forward's scratch, the moments follow the copy.
constexpr uint64_t conv_weights_scratch_bytes(bool uses_mma, DType weights, const ConvShape& s) {
  return uses_mma && weights != DType::kBf16 ? align_up(stored_bytes(DType::kBf16, s.K * conv_window_elements(s))) : 0;
}

namespace rules {
template <CardSize kCard, ProductMath kMath>
constexpr uint64_t cuda_conv_forward_scratch(const ShapedCall& c) {
  using A = ConvForward;  // also for NormConvForward, whose first arguments are the same
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  const DType stored = c[A::kX].dtype;
  if (is_in_groups(s))
    return c.has(A::kMeanOfY) ? cuda_batch_norm_statistics_scratch_bytes(conv_output_pixels(s), s.K) : 0;
  return conv_weights_scratch_bytes(conv_forward_uses_mma(stored, s), c[A::kW].dtype, s) +
         (c.has(A::kMeanOfY) ? moments_scratch_bytes(conv_forward_product(s),
                                                     conv_forward_tile(stored, c[A::kW].dtype, s, kMath, kCard))
                             : 0);
}
constexpr uint64_t cuda_conv_backward_data_scratch(const ShapedCall& c) {
  using A = ConvBackwardData;  // also for the transposed convolution
  static_assert(uint32_t{A::kDx} == ConvTransposeForward::kY && uint32_t{A::kDy} == ConvTransposeForward::kX &&
                uint32_t{A::kW} == ConvTransposeForward::kW);
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  if (is_in_groups(s)) return 0;
  return conv_weights_scratch_bytes(conv_backward_uses_mma(c[A::kDy].dtype, s), c[A::kW].dtype, s);
}
template <CardSize kCard, ProductMath kMath>
constexpr uint64_t cuda_conv_backward_weight_scratch(const ShapedCall& c) {
  using A = ConvBackwardWeight;  // also for NormConvBackwardWeight, whose first arguments are the same
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
