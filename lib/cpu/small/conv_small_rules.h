// Scratch of convolutions on a small core, by shape and window alone. Planner and kernel share
// these definitions (conv_small.cpp).
//
//   [ rows of x as f32, padded, only those that a window needs
//   | a panel of weights, or sums of a weight's gradient, for a few outputs at a time ]
#pragma once

#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/norm/batch_norm_rules.h"
#include "lib/cpu/small/small_tile.h"

namespace reprise {

// Approximate maximum floats of the panels, and of the sums. Both have space for at least one tile.
constexpr uint64_t kSmallPanelFloats = 2048, kSmallSumFloats = 8192;
// Number of multiply-adds for which a weight's gradient uses each prepared element of x, if there
// are enough outputs and enough scratch.
constexpr uint64_t kSmallProductsOfRead = 64;
// A tile's sums of a weight's gradient stay in registers for at least kSmallPlacesTogether
// positions of the output, but for at most kSmallRowsTogether rows of positions. Then they are
// written to memory.
constexpr uint32_t kSmallPlacesTogether = 32, kSmallRowsTogether = 8;

constexpr uint32_t small_columns(uint64_t columns) {
  return static_cast<uint32_t>((columns + kSmallColumns - 1) / kSmallColumns * kSmallColumns);
}

// True if every channel has one output of its own.
constexpr bool is_single(const ConvShape& s) { return s.window.groups > 1 && s.window.groups == s.C && s.C == s.K; }

// Returns the shape that the kernel computes. A pointwise convolution whose input is read in place
// becomes a convolution of a single row of all pixels. Tiles of pixels then do not end at the end
// of each row.
constexpr ConvShape small_shape(const ConvShape& s, bool in_place) {
  const WindowAttribute& w = s.window;
  const uint64_t pixels = uint64_t{s.N} * s.H * s.W;
  const bool pointwise =
      w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && s.P == s.H && s.Q == s.W;
  if (!in_place || !pointwise || is_single(s) || pixels > 0x7fffffff) return s;
  ConvShape row = s;
  row.N = row.H = row.P = 1;
  row.W = row.Q = static_cast<uint32_t>(pixels);
  return row;
}
// Returns the shape for a weight's gradient. The input becomes a single row only if dy is read in
// place, and x in whole groups of kSmallColumns channels. Otherwise this row, the complete input,
// would be copied to scratch.
constexpr ConvShape small_gradient_shape(const ConvShape& s, bool as_they_are, bool stored_f32) {
  return small_shape(s, as_they_are && stored_f32 && s.window.groups == 1 && s.C % kSmallColumns == 0);
}

// Returns `walk` with its taps in ascending order: if its step is negative, the last tap becomes
// the first.
constexpr TapWalk forwards(const TapWalk& walk) {
  if (walk.step >= 0 || walk.taps == 0) return walk;
  return {walk.places, walk.taps, walk.stride, walk.offset + static_cast<int32_t>(walk.taps - 1) * walk.step,
          -walk.step};
}
constexpr int32_t last_read(const TapWalk& walk) {
  return static_cast<int32_t>(walk.places - 1) * walk.stride + walk.offset +
         static_cast<int32_t>(walk.taps - 1) * walk.step;
}

// The shape of the buffer into which a convolution copies rows of the tensor that it reads, the
// map. The buffer contains the map's rows that `together` rows of outputs read: C of the map's
// channels, with zeros to the left and right of each row.
struct SmallRowsShape {
  uint32_t H, W, pixel, C, left = 0, right = 0, kept = 0;
  bool inside = true;  // true if nothing outside the map is read

  constexpr SmallRowsShape(uint32_t height, uint32_t width, uint32_t map_channels, uint32_t channels,
                           const TapWalk& rows, const TapWalk& columns, uint32_t together)
      : H(height), W(width), pixel(map_channels), C(channels) {
    if (rows.taps == 0 || columns.taps == 0) return;
    const int32_t beyond = last_read(columns) - static_cast<int32_t>(W - 1);
    left = columns.offset < 0 ? static_cast<uint32_t>(-columns.offset) : 0;
    right = beyond > 0 ? static_cast<uint32_t>(beyond) : 0;
    kept = (together - 1) * static_cast<uint32_t>(rows.stride) + (rows.taps - 1) * static_cast<uint32_t>(rows.step) + 1;
    inside = left == 0 && right == 0 && rows.offset >= 0 && last_read(rows) < static_cast<int32_t>(H);
  }
  constexpr uint64_t row_floats() const { return uint64_t{left + W + right} * C; }
  // Returns the floats of the buffer. A tile may read a few floats after the last row, and ignores
  // them.
  constexpr uint64_t floats() const { return kept * row_floats() + kSmallColumns; }
};

// Returns the number of panels that are packed together.
constexpr uint32_t small_panels(uint64_t depth, uint64_t outputs) {
  const uint64_t all = small_columns(outputs) / kSmallColumns;
  return static_cast<uint32_t>(smaller(all, larger(1, kSmallPanelFloats / larger(1, depth * kSmallColumns))));
}

// Scratch of a correlation, for one group: a forward, or a phase of the data gradient.
struct SmallCorrelationScratch {
  uint64_t rows = 0, panels = 0;  // floats of each part

  constexpr uint64_t floats() const { return rows + panels; }
};
constexpr SmallCorrelationScratch small_correlation_scratch(const SmallRowsShape& source, uint64_t taps,
                                                            uint32_t channels, uint32_t outputs, bool single,
                                                            bool as_they_are) {
  SmallCorrelationScratch scratch;
  if (taps == 0) return scratch;
  scratch.rows = !single && as_they_are && source.inside ? 0 : small_columns(source.floats());
  scratch.panels =
      single ? taps * kSmallColumns : taps * channels * kSmallColumns * small_panels(taps * channels, outputs);
  return scratch;
}
// Returns the channels that are read at a time: eight if every channel has one output of its own.
constexpr uint32_t small_channels(const ConvShape& s, uint32_t channels) {
  return is_single(s) ? kSmallColumns : channels;
}

constexpr SmallCorrelationScratch small_forward_scratch(const ConvShape& s, bool as_they_are) {
  const TapWalk rows = forward_walk(s.window.rows(), s.P), columns = forward_walk(s.window.columns(), s.Q);
  const SmallRowsShape source(s.H, s.W, s.C, small_channels(s, s.C), rows, columns, 1);
  return small_correlation_scratch(source, uint64_t{rows.taps} * columns.taps, s.group_inputs(), s.group_outputs(),
                                   is_single(s), as_they_are);
}
constexpr SmallCorrelationScratch small_phase_scratch(const ConvShape& s, const DataPhase& phase, bool as_they_are) {
  const TapWalk rows = forwards(phase.rows.walk), columns = forwards(phase.columns.walk);
  const SmallRowsShape source(s.P, s.Q, s.K, small_channels(s, s.K), rows, columns, 1);
  return small_correlation_scratch(source, uint64_t{rows.taps} * columns.taps, s.group_outputs(), s.group_inputs(),
                                   is_single(s), as_they_are);
}

// Scratch of a weight's gradient. Several rows of outputs are processed together, for a few outputs
// at a time, whose sums stay in tiles.
struct SmallGradientScratch {
  // `together`: rows of outputs at a time. `run`: contiguous weights in a row of taps. `runs`:
  // number of these runs in the row. `slice`: outputs at a time.
  uint32_t together, run, runs, slice;
  uint64_t rows, sums, strip;           // floats of each part; the strip has rows of dy as f32

  // Returns the tiles of a row of taps for kSmallLines outputs.
  constexpr uint64_t tiles() const { return runs * (small_columns(run) / kSmallColumns); }
  constexpr uint64_t floats() const { return rows + sums + strip; }
};
constexpr SmallGradientScratch small_gradient_scratch(const ConvShape& s, bool as_they_are, bool stored_f32) {
  const TapWalk rows = forward_walk(s.window.rows(), s.P), columns = forward_walk(s.window.columns(), s.Q);
  SmallGradientScratch g = {};
  g.together =
      static_cast<uint32_t>(smaller(smaller(s.P, kSmallRowsTogether), divide_up(kSmallPlacesTogether, larger(1, s.Q))));
  const SmallRowsShape source(s.H, s.W, s.C, small_channels(s, s.C), rows, columns, g.together);
  const bool merged = columns.step == 1 && s.window.groups == 1;
  g.run = merged ? columns.taps * s.C : s.group_inputs();
  g.runs = merged ? 1 : columns.taps;
  if (is_single(s)) {  // lines are a row's taps, columns are channels
    g.run = g.slice = kSmallColumns;
    g.runs = static_cast<uint32_t>(divide_up(columns.taps, kSmallLines));
    g.sums = rows.taps * g.tiles() * kSmallLines * kSmallColumns;
    g.strip = uint64_t{g.together} * s.Q * kSmallColumns;
  } else {
    const uint64_t of_lines = rows.taps * g.tiles() * kSmallLines * kSmallColumns;
    const uint64_t wanted =
        divide_up(kSmallProductsOfRead, kSmallLines * larger(1, uint64_t{rows.taps} * columns.taps));
    const uint64_t lines =
        smaller(divide_up(s.group_outputs(), kSmallLines), smaller(wanted, larger(1, kSmallSumFloats / of_lines)));
    g.slice = static_cast<uint32_t>(smaller(s.group_outputs(), lines * kSmallLines));
    g.sums = lines * of_lines;
    g.strip = stored_f32 ? 0 : uint64_t{g.together} * s.Q * g.slice;
  }
  // A tile reads x in whole groups of kSmallColumns floats.
  const bool in_place = !is_single(s) && as_they_are && source.inside && g.run % kSmallColumns == 0;
  g.rows = in_place ? 0 : small_columns(source.floats());
  g.strip = small_columns(g.strip);
  return g;
}

// Returns the bytes of the scratch. After the convolution, batch-norm's sums over the output use
// the same bytes.
constexpr uint64_t small_forward_scratch_bytes(const ConvShape& s, const SmallCorrelationScratch& scratch,
                                               bool takes_statistics) {
  return align_up(larger(4 * scratch.floats(),
                         takes_statistics ? batch_norm_statistics_scratch_bytes(uint64_t{s.N} * s.P * s.Q, s.K) : 0));
}

namespace rules {
constexpr bool is_f32(const Tensor& tensor) { return tensor.dtype == DType::kF32; }

template <typename A, bool kNormalises>
constexpr uint64_t small_conv_forward_bytes(const ShapedCall& c) {
  const bool as_they_are = is_f32(c[A::kX]) && !kNormalises;
  const ConvShape s = small_shape(conv_shape(c[A::kX], c[A::kY], c.template attribute<WindowAttribute>()), as_they_are);
  return small_forward_scratch_bytes(s, small_forward_scratch(s, as_they_are), c.has(A::kMeanOfY));
}
template <typename A, uint32_t kTo, uint32_t kFrom>
constexpr uint64_t small_conv_backward_data_bytes(const ShapedCall& c) {
  const ConvShape s =
      small_shape(conv_shape(c[kTo], c[kFrom], c.template attribute<WindowAttribute>()), is_f32(c[kFrom]));
  uint64_t maximum = 0;
  for_each_phase(s, [&](const DataPhase& phase) {
    maximum = larger(maximum, small_phase_scratch(s, phase, is_f32(c[kFrom])).floats());
  });
  return align_up(4 * maximum);
}
template <typename A, bool kNormalises>
constexpr uint64_t small_conv_backward_weight_bytes(const ShapedCall& c) {
  const bool as_they_are = is_f32(c[A::kX]) && !kNormalises, stored_f32 = is_f32(c[A::kDy]);
  const ConvShape s = small_gradient_shape(conv_shape(c[A::kX], c[A::kDy], c.template attribute<WindowAttribute>()),
                                           as_they_are, stored_f32);
  return align_up(4 * small_gradient_scratch(s, as_they_are, stored_f32).floats());
}
}  // namespace rules

constexpr void add_small_conv_rules(BackendRules& table) {
  table.of<ConvForward>() = {true, rules::small_conv_forward_bytes<ConvForward, false>};
  table.of<NormConvForward>() = {true, rules::small_conv_forward_bytes<NormConvForward, true>};
  table.of<ConvBackwardData>() = {
      true, rules::small_conv_backward_data_bytes<ConvBackwardData, ConvBackwardData::kDx, ConvBackwardData::kDy>};
  table.of<ConvTransposeForward>() = {
      true,
      rules::small_conv_backward_data_bytes<ConvTransposeForward, ConvTransposeForward::kY, ConvTransposeForward::kX>};
  table.of<ConvBackwardWeight>() = {true, rules::small_conv_backward_weight_bytes<ConvBackwardWeight, false>};
  table.of<NormConvBackwardWeight>() = {true, rules::small_conv_backward_weight_bytes<NormConvBackwardWeight, true>};
}

}  // namespace reprise
