// Operands of a convolution as a product: pixels under a window, pixels of a gradient, and taps. No
// patch is copied in memory. The counterpart of lib/cpu/conv/conv_patches.h. Pixels outside of the
// input are zero, also if the input is relu(norm(x)).
#pragma once

#include "cuda/gemm/tile_source.h"
#include "lib/ops/conv.h"

namespace reprise {

// The input of a convolution: x, or relu(norm(x)) if there is a norm. relu(norm(x)) is rounded to
// Stored, because the kernels on tensor cores round it too. One kernel computes both cases: all
// threads of a launch take the same branch, and two kernels would double the compiled code.
template <typename Stored>
struct ConvInput {
  const Stored* x;
  InputNorm norm;

  __device__ float at(uint64_t pixel, uint32_t C, uint32_t c) const {
    const float value = x[pixel * C + c];
    if (norm.mean == nullptr) return value;
    const float y = fmaf(value - norm.mean[c], norm.rstd[c] * norm.gamma[c], norm.beta[c]);
    return y <= 0.0f ? 0.0f : float{Stored(y)};  // NaN stays NaN
  }
};

// The input pixel that tap (r, t) of the window of `output` reads; `inside` is false for padding.
struct WindowPixel {
  uint64_t pixel;
  bool inside;

  __device__ WindowPixel(const ConvShape& s, uint32_t output, uint32_t r, uint32_t t) {
    const uint32_t q = output % s.Q, line = output / s.Q, p = line % s.P, n = line / s.P;
    const WindowAttribute& a = s.window;
    // A coordinate below 0 wraps to a huge number, so one comparison tests both ends.
    const uint32_t h = p * a.stride_h + r * a.dilation_h - a.pad_top,
                   w = q * a.stride_w + t * a.dilation_w - a.pad_left;
    inside = h < s.H && w < s.W;
    pixel = (uint64_t{n} * s.H + h) * s.W + w;
  }
};

// Pixels under a window. An index is an output pixel; a depth is a tap and an input channel, in the
// order of w[k].
template <typename Stored>
struct PixelsSource {
  static constexpr bool kAlongDepth = true;
  ConvInput<Stored> input;
  ConvShape shape;
  uint32_t count;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    const uint32_t tap = static_cast<uint32_t>(depth) / shape.C, c = static_cast<uint32_t>(depth) % shape.C;
    const uint32_t r = tap / shape.window.kernel_w, t = tap % shape.window.kernel_w;
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t output = static_cast<uint32_t>(index) + i;
      const WindowPixel at(shape, output, r, t);
      pack.at[i] = output < count && at.inside ? input.at(at.pixel, shape.C, c) : 0.0f;
    }
    return pack;
  }
};

// Pixels under each tap. An index is a tap and an input channel; a depth is an output pixel.
template <typename Stored>
struct TapsSource {
  static constexpr bool kAlongDepth = false, kNeedsRegisters = true;
  ConvInput<Stored> input;
  ConvShape shape;
  uint32_t count;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t flat = static_cast<uint32_t>(index) + i, tap = flat / shape.C, c = flat % shape.C;
      const WindowPixel at(shape, static_cast<uint32_t>(depth), tap / shape.window.kernel_w,
                           tap % shape.window.kernel_w);
      pack.at[i] = flat < count && at.inside ? input.at(at.pixel, shape.C, c) : 0.0f;
    }
    return pack;
  }
};

// In one dimension, the taps that read the inputs i = stride * a + phase, for a < `inputs`. They
// are the taps tap + tap_step * j, for j < `taps`. Tap j reads input a for output
// a + offset - step * j.
struct ConvPhase {
  uint32_t phase, inputs, tap, taps, tap_step;
  int32_t offset;
  uint32_t step;
};
constexpr ConvPhase conv_phase(uint32_t size, const WindowSide& side, uint32_t phase) {
  const uint32_t stride = side.stride, reach = phase + side.pad, common = common_divisor(stride, side.dilation),
                 tap_step = stride / common;
  uint32_t tap = 0;
  while (tap < tap_step && (reach + uint64_t{stride} * side.dilation - uint64_t{tap} * side.dilation) % stride != 0)
    ++tap;
  const bool reached = tap < tap_step && tap < side.kernel;
  return {phase,
          size > phase ? (size - phase + stride - 1) / stride : 0,
          tap,
          reached ? (side.kernel - tap + tap_step - 1) / tap_step : 0,
          tap_step,
          (static_cast<int32_t>(reach) - static_cast<int32_t>(tap * side.dilation)) / static_cast<int32_t>(stride),
          side.dilation / common};
}
// One phase: one of stride_h x stride_w interleaved parts of dx. Each part is a convolution of dy
// with stride 1.
struct ConvPhases {
  ConvPhase rows, columns;
  constexpr uint64_t inputs(uint32_t N) const { return uint64_t{N} * rows.inputs * columns.inputs; }
  constexpr uint64_t taps() const { return uint64_t{rows.taps} * columns.taps; }
};

// Pixels of dy. An index is an input pixel of the phase; a depth is a tap of the phase and an
// output channel.
template <typename Stored>
struct GradientPixelsSource {
  static constexpr bool kAlongDepth = true;
  const Stored* dy;
  ConvShape shape;
  ConvPhases phases;
  uint32_t count;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    const uint32_t tap = static_cast<uint32_t>(depth) / shape.K, k = static_cast<uint32_t>(depth) % shape.K;
    const uint32_t i_tap = tap / phases.columns.taps, j_tap = tap % phases.columns.taps;
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t input = static_cast<uint32_t>(index) + i;
      const uint32_t line = input / phases.columns.inputs, n = line / phases.rows.inputs;
      // Outputs below 0 wrap to huge numbers, so one comparison tests both ends.
      const uint32_t p = line % phases.rows.inputs + phases.rows.offset - i_tap * phases.rows.step;
      const uint32_t q = input % phases.columns.inputs + phases.columns.offset - j_tap * phases.columns.step;
      const bool inside = input < count && p < shape.P && q < shape.Q;
      pack.at[i] = inside ? float{dy[((uint64_t{n} * shape.P + p) * shape.Q + q) * shape.K + k]} : 0.0f;
    }
    return pack;
  }
};

// Weights of a phase. An index is an input channel; a depth is a tap of the phase and an output
// channel.
template <typename Stored>
struct PhaseTapsSource {
  static constexpr bool kAlongDepth = false;
  Weight w;
  ConvShape shape;
  ConvPhases phases;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    const uint32_t tap = static_cast<uint32_t>(depth) / shape.K, k = static_cast<uint32_t>(depth) % shape.K;
    const uint32_t r = phases.rows.tap + phases.rows.tap_step * (tap / phases.columns.taps);
    const uint32_t t = phases.columns.tap + phases.columns.tap_step * (tap % phases.columns.taps);
    const uint64_t from = ((uint64_t{k} * shape.window.kernel_h + r) * shape.window.kernel_w + t) * shape.C + index;
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < shape.C ? weight_as<Stored>(w, from + i) : 0.0f;
    return pack;
  }
};

// Maps the rows of a product to dx: row r is input pixel r of the phase.
struct PhaseRows {
  ConvShape shape;
  ConvPhases phases;
  __device__ uint64_t offset(uint64_t row) const {
    const uint32_t input = static_cast<uint32_t>(row), line = input / phases.columns.inputs,
                   n = line / phases.rows.inputs;
    const uint32_t h = line % phases.rows.inputs * shape.window.stride_h + phases.rows.phase;
    const uint32_t w = input % phases.columns.inputs * shape.window.stride_w + phases.columns.phase;
    return ((uint64_t{n} * shape.H + h) * shape.W + w) * shape.C;
  }
};

}  // namespace reprise
