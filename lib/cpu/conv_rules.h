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

// Of the forward and of the weight's gradient.
constexpr ConvAlgorithm conv_algorithm(const ConvShape& s) {
  const DirectShape shape = direct_shape(s);
  if (winograd_fits(shape)) return ConvAlgorithm::kWinograd;
  return direct_conv_fits(shape) ? ConvAlgorithm::kDirect : ConvAlgorithm::kProduct;
}
constexpr ConvAlgorithm conv_data_algorithm(const ConvShape& s) {
  if (s.window.stride == 1 && winograd_fits(direct_phase_shape(s, DataPhase(s, 0, 0)))) return ConvAlgorithm::kWinograd;
  return direct_data_fits(s) ? ConvAlgorithm::kDirect : ConvAlgorithm::kProduct;
}

constexpr uint64_t conv_weights(const ConvShape& s) { return uint64_t{s.K} * s.window.kernel_h * s.window.kernel_w * s.C; }

// Weights stored as bf16 are widened once a call, to the start of the scratch: every algorithm reads them many times.
constexpr uint64_t widened_weights_bytes(const ConvShape& s, DType weights) {
  return weights == DType::kF32 ? 0 : align_up(stored_bytes(DType::kF32, conv_weights(s)));
}

// Without statistics and widened weights; `stored`: the activations.
constexpr uint64_t conv_forward_scratch_bytes(const ConvShape& s, DType stored) {
  switch (conv_algorithm(s)) {
    case ConvAlgorithm::kWinograd: return winograd_correlate_bytes(s.C, s.K);
    case ConvAlgorithm::kDirect: return direct_weights_bytes(conv_weights(s));
    case ConvAlgorithm::kProduct: return gemm_scratch_bytes(s.K, conv_weights(s) / s.K, stored);
  }
  return 0;
}
constexpr uint64_t conv_backward_data_scratch_bytes(const ConvShape& s, DType stored) {
  switch (conv_data_algorithm(s)) {
    case ConvAlgorithm::kWinograd: return winograd_correlate_bytes(s.K, s.C);
    case ConvAlgorithm::kDirect: return direct_weights_bytes(conv_weights(s));
    case ConvAlgorithm::kProduct: return gemm_scratch_bytes(s.C, conv_weights(s) / s.C, stored);
  }
  return 0;
}
constexpr uint64_t conv_backward_weight_scratch_bytes(const ConvShape& s) {
  switch (conv_algorithm(s)) {
    case ConvAlgorithm::kWinograd: return winograd_gradient_bytes(s.C, s.K);
    case ConvAlgorithm::kDirect: return direct_partials_bytes(conv_weights(s));
    case ConvAlgorithm::kProduct: return gemm_split_scratch_bytes(s.K, conv_weights(s) / s.K, uint64_t{s.N} * s.P * s.Q);
  }
  return 0;
}

constexpr uint64_t conv_stack_bytes(ConvAlgorithm algorithm, DType output) {
  switch (algorithm) {
    case ConvAlgorithm::kWinograd: return kWinogradStackBytes;
    case ConvAlgorithm::kDirect: return kDirectStackBytes;
    case ConvAlgorithm::kProduct: return product_stack_bytes(output);
  }
  return 0;
}

namespace rules {
constexpr uint64_t conv_forward_stack(const ShapedCall& c) {
  using A = ConvForward;
  return conv_stack_bytes(conv_algorithm(conv_shape(c[A::kX], c[A::kY], c.attribute<WindowAttribute>())), c[A::kY].dtype);
}
constexpr uint64_t conv_backward_data_stack(const ShapedCall& c) {
  using A = ConvBackwardData;
  return conv_stack_bytes(conv_data_algorithm(conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>())), c[A::kDx].dtype);
}
constexpr uint64_t conv_backward_weight_stack(const ShapedCall& c) {
  using A = ConvBackwardWeight;
  return conv_stack_bytes(conv_algorithm(conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>())), DType::kF32);
}
constexpr uint64_t conv_forward_scratch(const ShapedCall& c) {
  using A = ConvForward;  // the folded kernel's arguments begin like these
  const Tensor& y = c[A::kY];
  const uint64_t statistics = c.has(A::kMeanOfY) ? output_statistics_scratch_bytes(y.leading_elements(), y.last_dimension()) : 0;
  const ConvShape s = conv_shape(c[A::kX], y, c.attribute<WindowAttribute>());
  return widened_weights_bytes(s, c[A::kW].dtype) + align_up(conv_forward_scratch_bytes(s, y.dtype)) + statistics;
}
constexpr uint64_t conv_backward_data_scratch(const ShapedCall& c) {
  using A = ConvBackwardData;
  const ConvShape s = conv_shape(c[A::kDx], c[A::kDy], c.attribute<WindowAttribute>());
  return widened_weights_bytes(s, c[A::kW].dtype) + conv_backward_data_scratch_bytes(s, c[A::kDx].dtype);
}
constexpr uint64_t conv_backward_weight_scratch(const ShapedCall& c) {
  using A = ConvBackwardWeight;  // as above
  return conv_backward_weight_scratch_bytes(conv_shape(c[A::kX], c[A::kDy], c.attribute<WindowAttribute>()));
}
}  // namespace rules

constexpr void add_conv_rules(BackendRules& table) {
  table.of<ConvForward>() = {true, rules::conv_forward_scratch, rules::conv_forward_stack};
  table.of<ConvBackwardData>() = {true, rules::conv_backward_data_scratch, rules::conv_backward_data_stack};
  table.of<ConvBackwardWeight>() = {true, rules::conv_backward_weight_scratch, rules::conv_backward_weight_stack};
  table.of<NormConvForward>() = {true, rules::conv_forward_scratch, rules::conv_forward_stack};
  table.of<NormConvBackwardWeight>() = {true, rules::conv_backward_weight_scratch, rules::conv_backward_weight_stack};
}

}  // namespace reprise
