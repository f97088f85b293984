// The choice of a convolution's algorithm, and its scratch and stack, as functions of shape, window
// and stored types. Planner and kernel share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/conv/conv_depthwise.h"
#include "lib/cpu/conv/conv_direct.h"
#include "lib/cpu/conv/conv_winograd.h"
#include "lib/cpu/gemm/gemm_scratch.h"
#include "lib/cpu/norm/batch_norm_rules.h"

namespace reprise {

// True if the convolution is a plain matrix product over pixels: x, w and y are its operands in
// place.
constexpr bool is_pointwise(const ConvShape& s) {
  const WindowAttribute& w = s.window;
  return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && s.P == s.H && s.Q == s.W &&
         w.pad_top == 0 && w.pad_left == 0 && w.groups == 1;
}

// True if the window has one group, no dilation and equal strides. The direct kernel and Winograd's
// require this.
constexpr bool is_dense(const WindowAttribute& w) {
  return w.groups == 1 && w.stride_h == w.stride_w && w.dilation_h == 1 && w.dilation_w == 1;
}
constexpr DirectShape direct_shape(const ConvShape& s) {
  return {s.N,
          s.H,
          s.W,
          s.C,
          s.P,
          s.Q,
          s.K,
          s.window.kernel_h,
          s.window.kernel_w,
          s.window.stride_h,
          s.window.pad_top,
          s.window.pad_left};
}

// True if each input channel is a group of its own.
constexpr bool is_depthwise(const ConvShape& s) { return s.window.groups > 1 && s.window.groups == s.C; }

// The windows of all places along one dimension; a place is a position of the output, or of dx in a
// data gradient. Tap t of place a reads element a * stride + offset + t * step, which may be
// outside the tensor that is read.
struct TapWalk {
  uint32_t places, taps;
  int32_t stride, offset, step;
};

// Returns the windows of the outputs over x, along one dimension.
constexpr TapWalk forward_walk(const WindowSide& side, uint32_t outputs) {
  return {outputs, side.kernel, static_cast<int32_t>(side.stride), -static_cast<int32_t>(side.pad),
          static_cast<int32_t>(side.dilation)};
}

// One dimension of a phase of a data gradient: the inputs first + a * stride, for the places a of
// `walk`. Only taps tap + tap_step * t of the window read these inputs. By `walk`, tap t of place a
// reads an element of dy: the output whose window reads input first + a * stride with its tap tap +
// tap_step * t.
struct Phase {
  TapWalk walk;
  uint32_t first, tap, tap_step;

  constexpr uint32_t inputs() const { return walk.places; }
  constexpr uint32_t taps() const { return walk.taps; }
};
constexpr Phase phase_of(uint32_t size, const WindowSide& side, uint32_t phase) {
  const uint32_t stride = side.stride, reach = phase + side.pad, common = common_divisor(stride, side.dilation),
                 apart = stride / common;
  const uint32_t inputs = size > phase ? (size - phase + stride - 1) / stride : 0;
  uint32_t tap = 0;
  while (tap < apart && (reach + uint64_t{stride} * side.dilation - uint64_t{tap} * side.dilation) % stride != 0) ++tap;
  const bool reached = tap < apart && tap < side.kernel;
  // `from` is a multiple of the stride if a tap reaches the phase.
  const int32_t from = static_cast<int32_t>(reach) - static_cast<int32_t>(tap * side.dilation);
  return {.walk = {.places = inputs,
                   .taps = reached ? (side.kernel - tap + apart - 1) / apart : 0,
                   .stride = 1,
                   .offset = from / static_cast<int32_t>(stride),
                   .step = -static_cast<int32_t>(side.dilation / common)},
          .first = phase,
          .tap = tap,
          .tap_step = apart};
}

// One of the stride_h x stride_w interleaved parts of dx.
struct DataPhase {
  Phase rows, columns;

  constexpr DataPhase(const ConvShape& s, uint32_t row, uint32_t column)
      : rows(phase_of(s.H, s.window.rows(), row)), columns(phase_of(s.W, s.window.columns(), column)) {}
  constexpr bool empty() const { return rows.inputs() == 0 || columns.inputs() == 0; }
  constexpr bool tapless() const { return rows.taps() == 0 || columns.taps() == 0; }
};

// Calls body(phase) for each phase of dx that has pixels.
template <typename F>
constexpr void for_each_phase(const ConvShape& s, const F& body) {
  for (uint32_t row = 0; row < s.window.stride_h; ++row) {
    for (uint32_t column = 0; column < s.window.stride_w; ++column) {
      const DataPhase phase(s, row, column);
      if (!phase.empty()) body(phase);
    }
  }
}

// Returns a phase of a dense window as a correlation of dy. The order of its taps is reversed,
// because tap t reads row a + offset - t.
constexpr DirectShape direct_phase_shape(const ConvShape& s, const DataPhase& p) {
  return {s.N,
          s.P,
          s.Q,
          s.K,
          p.rows.inputs(),
          p.columns.inputs(),
          s.C,
          p.rows.taps(),
          p.columns.taps(),
          1,
          p.rows.taps() - 1 - static_cast<uint32_t>(p.rows.walk.offset),
          p.columns.taps() - 1 - static_cast<uint32_t>(p.columns.walk.offset)};
}

// True if the direct kernel can compute the data gradient. The window must be dense, with a stride
// of 1 or 2, and must have several taps or a stride of 2. Each phase with taps must fit. Its
// padding before the first row or column, taps - 1 - offset, must not be negative.
constexpr bool direct_data_fits(const ConvShape& s) {
  if (!is_dense(s.window) || s.window.stride_h > 2 ||
      uint32_t{s.window.kernel_h} * s.window.kernel_w * s.window.stride_h == 1)
    return false;
  bool fits = true;
  for_each_phase(s, [&](const DataPhase& phase) {
    if (phase.tapless()) return;
    const bool near = phase.rows.walk.offset < static_cast<int32_t>(phase.rows.taps()) &&
                      phase.columns.walk.offset < static_cast<int32_t>(phase.columns.taps());
    fits = fits && near && direct_fits(direct_phase_shape(s, phase));
  });
  return fits;
}

// kProduct is one matrix product for each group.
enum class ConvAlgorithm : uint8_t { kProduct, kDirect, kWinograd, kDepthwise };

// Returns the algorithm of the forward and of the weight's gradient on a large core. A small core
// has other kernels (conv_small.cpp).
constexpr ConvAlgorithm conv_algorithm(const ConvShape& s) {
  if (is_depthwise(s)) return ConvAlgorithm::kDepthwise;
  if (!is_dense(s.window)) return ConvAlgorithm::kProduct;
  const DirectShape shape = direct_shape(s);
  if (winograd_fits(shape)) return ConvAlgorithm::kWinograd;
  return direct_conv_fits(shape) ? ConvAlgorithm::kDirect : ConvAlgorithm::kProduct;
}
constexpr ConvAlgorithm conv_data_algorithm(const ConvShape& s) {
  if (is_depthwise(s)) return ConvAlgorithm::kDepthwise;
  if (!is_dense(s.window)) return ConvAlgorithm::kProduct;
  if (s.window.stride_h == 1 && winograd_fits(direct_phase_shape(s, DataPhase(s, 0, 0))))
    return ConvAlgorithm::kWinograd;
  return direct_data_fits(s) ? ConvAlgorithm::kDirect : ConvAlgorithm::kProduct;
}

constexpr uint64_t conv_weights(const ConvShape& s) {
  return uint64_t{s.K} * s.window.kernel_h * s.window.kernel_w * s.group_inputs();
}

// Calls use(depth) for each phase of a group's data gradient, with the depth of the phase's
// product. A caller needs the maximum bytes over all depths: with a smaller depth a product may
// pack more columns, and so need more scratch.
template <typename F>
constexpr void for_each_phase_depth(const ConvShape& s, const F& use) {
  for_each_phase(s, [&](const DataPhase& phase) {
    if (!phase.tapless()) use(uint64_t{phase.rows.taps()} * phase.columns.taps() * s.group_outputs());
  });
}

enum class ConvPass : uint8_t { kForward, kData, kWeight };

// True if a product of pairs of bf16 (bf16_pairs.h) has enough columns for a tile, and enough depth
// for the groups of any tile. A data gradient sums over the outputs of some taps; no pair spans two
// taps, so the number of outputs must be even. A weight's gradient sums over places. False for
// depthwise convolutions.
constexpr bool conv_fills_pairs(const ConvShape& s, ConvPass pass) {
  constexpr uint64_t kMin = 32;
  const uint64_t taps = conv_weights(s) / s.K;
  if (is_depthwise(s)) return false;
  switch (pass) {
    case ConvPass::kForward: return s.group_outputs() >= kMin && taps >= kMin;
    case ConvPass::kData:
      return s.group_inputs() >= kMin && s.group_outputs() >= kMin && s.group_outputs() % 2 == 0;
    case ConvPass::kWeight: return taps >= kMin && uint64_t{s.N} * s.P * s.Q >= kMin;
  }
  return false;
}

// Returns the bytes of the weights widened to f32; 0 if they are stored as f32. A call widens them
// once, to the start of its scratch, because every algorithm reads them many times.
constexpr uint64_t widened_weights_bytes(const ConvShape& s, DType weights) {
  return weights == DType::kF32 ? 0 : align_up(stored_bytes(DType::kF32, conv_weights(s)));
}

// True if scratch and stack must also have space for a product of pairs. The machine decides
// whether pairs are used (conv_pairs.h), so the space for the f32 algorithm is kept as well.
constexpr bool has_space_for_pairs(const ConvShape& s, ConvPass pass, DType stored) {
  return stored == DType::kBf16 && conv_fills_pairs(s, pass);
}

// The scratch of a call:
//   [ w as f32 if it is stored otherwise | the algorithm's scratch | statistics of y if needed ]
struct ConvScratch {
  ConvAlgorithm algorithm = ConvAlgorithm::kProduct;
  uint64_t work_at = 0, statistics_at = 0, bytes = 0;
};
constexpr ConvScratch conv_forward_scratch(const ConvShape& s, DType stored, DType weights, bool statistics) {
  ConvScratch scratch = {.algorithm = conv_algorithm(s), .work_at = widened_weights_bytes(s, weights)};
  uint64_t work = 0;
  switch (scratch.algorithm) {
    case ConvAlgorithm::kWinograd: work = winograd_correlate_bytes(s.C, s.K); break;
    case ConvAlgorithm::kDirect: work = direct_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kDepthwise: work = depthwise_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kProduct: work = gemm_scratch_bytes(s.group_outputs(), conv_weights(s) / s.K, stored); break;
  }
  if (has_space_for_pairs(s, ConvPass::kForward, stored))
    work = larger(work, gemm_scratch_bytes(s.group_outputs(), conv_weights(s) / s.K, stored));
  scratch.statistics_at = scratch.work_at + align_up(work);
  scratch.bytes =
      scratch.statistics_at + (statistics ? output_statistics_scratch_bytes(uint64_t{s.N} * s.P * s.Q, s.K) : 0);
  return scratch;
}
constexpr uint64_t data_product_bytes(const ConvShape& s, DType stored) {
  uint64_t maximum = 0;
  for_each_phase_depth(s, [&](uint64_t depth) {
    maximum = larger(maximum, gemm_scratch_bytes(s.group_inputs(), depth, stored));
  });
  return maximum;
}
constexpr ConvScratch conv_backward_data_scratch(const ConvShape& s, DType stored, DType weights) {
  ConvScratch scratch = {.algorithm = conv_data_algorithm(s), .work_at = widened_weights_bytes(s, weights)};
  uint64_t work = 0;
  switch (scratch.algorithm) {
    case ConvAlgorithm::kWinograd: work = winograd_correlate_bytes(s.K, s.C); break;
    case ConvAlgorithm::kDirect: work = direct_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kDepthwise: work = depthwise_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kProduct: work = data_product_bytes(s, stored); break;
  }
  if (has_space_for_pairs(s, ConvPass::kData, stored)) work = larger(work, data_product_bytes(s, stored));
  scratch.statistics_at = scratch.bytes = scratch.work_at + work;
  return scratch;
}
constexpr ConvScratch conv_backward_weight_scratch(const ConvShape& s, DType stored) {
  ConvScratch scratch = {.algorithm = conv_algorithm(s)};
  const uint64_t product =
      gemm_split_scratch_bytes(s.group_outputs(), conv_weights(s) / s.K, uint64_t{s.N} * s.P * s.Q);
  switch (scratch.algorithm) {
    case ConvAlgorithm::kWinograd: scratch.bytes = winograd_gradient_bytes(s.C, s.K); break;
    case ConvAlgorithm::kDirect: scratch.bytes = direct_partials_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kDepthwise: scratch.bytes = kDepthwiseParts * depthwise_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kProduct: scratch.bytes = product; break;
  }
  if (has_space_for_pairs(s, ConvPass::kWeight, stored)) scratch.bytes = larger(scratch.bytes, product);
  scratch.statistics_at = scratch.bytes;
  return scratch;
}

// Returns the stack bytes of a convolution whose product has N columns and depth K.
constexpr uint64_t conv_stack_bytes(ConvAlgorithm algorithm, bool may_pair, uint64_t N, uint64_t K,
                                    const ProductStack& with) {
  const uint64_t product = product_stack_bytes(N, K, with), if_paired = may_pair ? product : 0;
  switch (algorithm) {
    case ConvAlgorithm::kWinograd: return larger(kWinogradStackBytes, if_paired);
    case ConvAlgorithm::kDirect: return larger(kDirectStackBytes, if_paired);
    case ConvAlgorithm::kDepthwise: return 0;
    case ConvAlgorithm::kProduct: return product;
  }
  return 0;
}

namespace rules {
// Returns the stack bytes of a forward. Patches are copied, widened or normalised line by line.
// Kernels with a folded norm use this rule, too: their first arguments are those of ConvForward.
constexpr uint64_t conv_forward_stack(const ShapedCall& c) {
  using A = ConvForward;
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  return conv_stack_bytes(conv_algorithm(s), has_space_for_pairs(s, ConvPass::kForward, c[A::kY].dtype),
                          s.group_outputs(), conv_weights(s) / s.K, {.output = c[A::kY].dtype, .lines = true});
}
constexpr uint64_t conv_backward_data_stack(const ShapedCall& c) {
  using A = ConvBackwardData;  // or ConvTransposeForward
  static_assert(uint32_t{A::kDx} == ConvTransposeForward::kY && uint32_t{A::kDy} == ConvTransposeForward::kX &&
                uint32_t{A::kW} == ConvTransposeForward::kW);
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  const bool may_pair = has_space_for_pairs(s, ConvPass::kData, c[A::kDx].dtype);
  uint64_t maximum = 0;
  for_each_phase_depth(s, [&](uint64_t depth) {
    const ProductStack with = {.output = c[A::kDx].dtype, .lines = true};
    maximum = larger(maximum, conv_stack_bytes(conv_data_algorithm(s), may_pair, s.group_inputs(), depth, with));
  });
  return maximum;
}
constexpr uint64_t conv_backward_weight_stack(const ShapedCall& c) {
  using A = ConvBackwardWeight;
  const ConvShape s = conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>());
  const ProductStack with = {.lines = c[A::kX].dtype != DType::kF32};
  return conv_stack_bytes(conv_algorithm(s), has_space_for_pairs(s, ConvPass::kWeight, c[A::kX].dtype),
                          conv_weights(s) / s.K, uint64_t{s.N} * s.P * s.Q, with);
}
constexpr uint64_t conv_forward_bytes(const ShapedCall& c) {
  using A = ConvForward;
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  return conv_forward_scratch(s, c[A::kY].dtype, c[A::kW].dtype, c.has(A::kMeanOfY)).bytes;
}
constexpr uint64_t conv_backward_data_bytes(const ShapedCall& c) {
  using A = ConvBackwardData;
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  return conv_backward_data_scratch(s, c[A::kDx].dtype, c[A::kW].dtype).bytes;
}
constexpr uint64_t conv_backward_weight_bytes(const ShapedCall& c) {
  using A = ConvBackwardWeight;
  return conv_backward_weight_scratch(conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>()), c[A::kX].dtype)
      .bytes;
}
}  // namespace rules

constexpr void add_conv_rules(BackendRules& table) {
  table.of<ConvForward>() = {true, rules::conv_forward_bytes, rules::conv_forward_stack};
  table.of<ConvBackwardData>() = {true, rules::conv_backward_data_bytes, rules::conv_backward_data_stack};
  table.of<ConvBackwardWeight>() = {true, rules::conv_backward_weight_bytes, rules::conv_backward_weight_stack};
  table.of<ConvTransposeForward>() = {true, rules::conv_backward_data_bytes, rules::conv_backward_data_stack};
  table.of<NormConvForward>() = {true, rules::conv_forward_bytes, rules::conv_forward_stack};
  table.of<NormConvBackwardWeight>() = {true, rules::conv_backward_weight_bytes, rules::conv_backward_weight_stack};
}

}  // namespace reprise
