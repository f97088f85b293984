// Which algorithm a convolution runs by, and the scratch and the stack that it takes: by shape and window alone, for planner and kernel alike.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/batch_norm_rules.h"
#include "lib/cpu/conv_direct.h"
#include "lib/cpu/conv_winograd.h"
#include "lib/cpu/gemm_scratch.h"

namespace reprise {

// A plain matrix product over pixels: x, w and y are its operands as they lie.
constexpr bool is_pointwise(const ConvShape& s) {
  return s.window.kernel_h == 1 && s.window.kernel_w == 1 && s.window.stride == 1 && s.window.pad == 0;
}

constexpr DirectShape direct_shape(const ConvShape& s) {
  return {s.N,          s.H,         s.W, s.C, s.P, s.Q, s.K, s.window.kernel_h, s.window.kernel_w, s.window.stride,
          s.window.pad, s.window.pad};
}

// Which taps reach the inputs i = stride * a + phase of one dimension: t = tap + stride * j, from output a + offset -
// j.
struct Phase {
  uint32_t inputs, tap, taps;
  int32_t offset;
};
constexpr Phase phase_of(uint32_t size, uint32_t kernel, const WindowAttribute& window, uint32_t phase) {
  const uint32_t stride = window.stride, reach = phase + window.pad;
  const uint32_t tap = reach % stride;
  return {.inputs = size > phase ? (size - phase + stride - 1) / stride : 0,
          .tap = tap,
          .taps = kernel > tap ? (kernel - tap + stride - 1) / stride : 0,
          .offset = static_cast<int32_t>(reach / stride)};
}

// One of stride x stride interleaved parts of dx.
struct DataPhase {
  Phase rows, columns;
  uint32_t row0, column0;

  constexpr DataPhase(const ConvShape& s, uint32_t row, uint32_t column)
      : rows(phase_of(s.H, s.window.kernel_h, s.window, row)),
        columns(phase_of(s.W, s.window.kernel_w, s.window, column)),
        row0(row),
        column0(column) {}
  constexpr bool empty() const { return rows.inputs == 0 || columns.inputs == 0; }
  constexpr bool tapless() const { return rows.taps == 0 || columns.taps == 0; }
};

// Calls body(phase) for each part that has pixels.
template <typename F>
constexpr void for_each_phase(const ConvShape& s, const F& body) {
  for (uint32_t row = 0; row < s.window.stride; ++row) {
    for (uint32_t column = 0; column < s.window.stride; ++column) {
      const DataPhase phase(s, row, column);
      if (!phase.empty()) body(phase);
    }
  }
}

// A phase as a correlation of dy with its taps turned round: tap t, the last first, reads row a + offset - t.
constexpr DirectShape direct_phase_shape(const ConvShape& s, const DataPhase& p) {
  return {s.N,
          s.P,
          s.Q,
          s.K,
          p.rows.inputs,
          p.columns.inputs,
          s.C,
          p.rows.taps,
          p.columns.taps,
          1,
          p.rows.taps - 1 - static_cast<uint32_t>(p.rows.offset),
          p.columns.taps - 1 - static_cast<uint32_t>(p.columns.offset)};
}

// A phase may read past the far edge of dy, never before the near one by more than its taps.
constexpr bool direct_data_fits(const ConvShape& s) {
  if (s.window.stride > 2 || uint32_t{s.window.kernel_h} * s.window.kernel_w * s.window.stride == 1) return false;
  bool fits = true;
  for_each_phase(s, [&](const DataPhase& phase) {
    if (phase.tapless()) return;
    const bool near = phase.rows.offset < static_cast<int32_t>(phase.rows.taps) &&
                      phase.columns.offset < static_cast<int32_t>(phase.columns.taps);
    fits = fits && near && direct_fits(direct_phase_shape(s, phase));
  });
  return fits;
}

enum class ConvAlgorithm : uint8_t { kProduct, kDirect, kWinograd };

// Of the forward and of the weight's gradient. The other two take more stack than a small core has.
constexpr ConvAlgorithm conv_algorithm(const ConvShape& s, CpuSize size) {
  if (size == CpuSize::kSmall) return ConvAlgorithm::kProduct;
  const DirectShape shape = direct_shape(s);
  if (winograd_fits(shape)) return ConvAlgorithm::kWinograd;
  return direct_conv_fits(shape) ? ConvAlgorithm::kDirect : ConvAlgorithm::kProduct;
}
constexpr ConvAlgorithm conv_data_algorithm(const ConvShape& s, CpuSize size) {
  if (size == CpuSize::kSmall) return ConvAlgorithm::kProduct;
  if (s.window.stride == 1 && winograd_fits(direct_phase_shape(s, DataPhase(s, 0, 0)))) return ConvAlgorithm::kWinograd;
  return direct_data_fits(s) ? ConvAlgorithm::kDirect : ConvAlgorithm::kProduct;
}

constexpr uint64_t conv_weights(const ConvShape& s) { return uint64_t{s.K} * s.window.kernel_h * s.window.kernel_w * s.C; }

// Weights stored as bf16 are widened once a call, to the start of the scratch: every algorithm reads them many times.
constexpr uint64_t widened_weights_bytes(const ConvShape& s, DType weights) {
  return weights == DType::kF32 ? 0 : align_up(stored_bytes(DType::kF32, conv_weights(s)));
}

// What a call works in: [ w as f32, where it is stored otherwise | the algorithm's own | statistics of y, where they are wanted ]
struct ConvScratch {
  ConvAlgorithm algorithm = ConvAlgorithm::kProduct;
  uint64_t work_at = 0, statistics_at = 0, bytes = 0;
};
constexpr ConvScratch conv_forward_scratch(const ConvShape& s, DType stored, DType weights, bool statistics, CpuSize size = CpuSize::kLarge) {
  ConvScratch scratch = {.algorithm = conv_algorithm(s, size), .work_at = widened_weights_bytes(s, weights)};
  uint64_t work = 0;
  switch (scratch.algorithm) {
    case ConvAlgorithm::kWinograd: work = winograd_correlate_bytes(s.C, s.K); break;
    case ConvAlgorithm::kDirect: work = direct_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kProduct: work = gemm_scratch_bytes(s.K, conv_weights(s) / s.K, stored, size); break;
  }
  scratch.statistics_at = scratch.work_at + align_up(work);
  scratch.bytes = scratch.statistics_at + (statistics ? output_statistics_scratch_bytes(uint64_t{s.N} * s.P * s.Q, s.K) : 0);
  return scratch;
}
constexpr ConvScratch conv_backward_data_scratch(const ConvShape& s, DType stored, DType weights, CpuSize size = CpuSize::kLarge) {
  ConvScratch scratch = {.algorithm = conv_data_algorithm(s, size), .work_at = widened_weights_bytes(s, weights)};
  uint64_t work = 0;
  switch (scratch.algorithm) {
    case ConvAlgorithm::kWinograd: work = winograd_correlate_bytes(s.K, s.C); break;
    case ConvAlgorithm::kDirect: work = direct_weights_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kProduct: work = gemm_scratch_bytes(s.C, conv_weights(s) / s.C, stored, size); break;
  }
  scratch.statistics_at = scratch.bytes = scratch.work_at + work;
  return scratch;
}
constexpr ConvScratch conv_backward_weight_scratch(const ConvShape& s, CpuSize size = CpuSize::kLarge) {
  ConvScratch scratch = {.algorithm = conv_algorithm(s, size)};
  switch (scratch.algorithm) {
    case ConvAlgorithm::kWinograd: scratch.bytes = winograd_gradient_bytes(s.C, s.K); break;
    case ConvAlgorithm::kDirect: scratch.bytes = direct_partials_bytes(conv_weights(s)); break;
    case ConvAlgorithm::kProduct: scratch.bytes = gemm_split_scratch_bytes(s.K, conv_weights(s) / s.K, uint64_t{s.N} * s.P * s.Q, size); break;
  }
  scratch.statistics_at = scratch.bytes;
  return scratch;
}

// A product of N columns, K deep.
constexpr uint64_t conv_stack_bytes(ConvAlgorithm algorithm, uint64_t N, uint64_t K, const ProductStack& with, CpuSize size) {
  switch (algorithm) {
    case ConvAlgorithm::kWinograd: return kWinogradStackBytes;
    case ConvAlgorithm::kDirect: return kDirectStackBytes;
    case ConvAlgorithm::kProduct: return product_stack_bytes(N, K, with, size);
  }
  return 0;
}

namespace rules {
// Patches are copied, widened or normalised line by line; the folded kernels' arguments begin like those of the others.
template <CpuSize kSize>
constexpr uint64_t conv_forward_stack(const ShapedCall& c) {
  using A = ConvForward;
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  return conv_stack_bytes(conv_algorithm(s, kSize), s.K, conv_weights(s) / s.K, {.output = c[A::kY].dtype, .lines = true}, kSize);
}
template <CpuSize kSize>
constexpr uint64_t conv_backward_data_stack(const ShapedCall& c) {
  using A = ConvBackwardData;
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  return conv_stack_bytes(conv_data_algorithm(s, kSize), s.C, conv_weights(s) / s.C, {.output = c[A::kDx].dtype, .lines = true}, kSize);
}
template <CpuSize kSize>
constexpr uint64_t conv_backward_weight_stack(const ShapedCall& c) {
  using A = ConvBackwardWeight;
  const ConvShape s = conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>());
  const ProductStack with = {.lines = c[A::kX].dtype != DType::kF32};
  return conv_stack_bytes(conv_algorithm(s, kSize), conv_weights(s) / s.K, uint64_t{s.N} * s.P * s.Q, with, kSize);
}
template <CpuSize kSize>
constexpr uint64_t conv_forward_bytes(const ShapedCall& c) {
  using A = ConvForward;
  const ConvShape s = conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>());
  return conv_forward_scratch(s, c[A::kY].dtype, c[A::kW].dtype, c.has(A::kMeanOfY), kSize).bytes;
}
template <CpuSize kSize>
constexpr uint64_t conv_backward_data_bytes(const ShapedCall& c) {
  using A = ConvBackwardData;
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  return conv_backward_data_scratch(s, c[A::kDx].dtype, c[A::kW].dtype, kSize).bytes;
}
template <CpuSize kSize>
constexpr uint64_t conv_backward_weight_bytes(const ShapedCall& c) {
  using A = ConvBackwardWeight;
  return conv_backward_weight_scratch(conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>()), kSize).bytes;
}
}  // namespace rules

template <CpuSize kSize>
constexpr void add_conv_rules(BackendRules& table) {
  table.of<ConvForward>() = {true, rules::conv_forward_bytes<kSize>, rules::conv_forward_stack<kSize>};
  table.of<ConvBackwardData>() = {true, rules::conv_backward_data_bytes<kSize>, rules::conv_backward_data_stack<kSize>};
  table.of<ConvBackwardWeight>() = {true, rules::conv_backward_weight_bytes<kSize>, rules::conv_backward_weight_stack<kSize>};
  table.of<NormConvForward>() = {true, rules::conv_forward_bytes<kSize>, rules::conv_forward_stack<kSize>};
  table.of<NormConvBackwardWeight>() = {true, rules::conv_backward_weight_bytes<kSize>, rules::conv_backward_weight_stack<kSize>};
}

}  // namespace reprise
