// See conv_depthwise.h.
// Forward and the gradient of the data are one walk: each element of the output gathers taps of the input, by the TapWalks of conv_rules.h.
#include "lib/cpu/conv_depthwise.h"

#include <cstring>

#include "lib/cpu/conv_rules.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/output_statistics.h"
#include "lib/cpu/vector_of.h"

// A loop whose few steps the compiler must write out, so that what it indexes stays in registers.
#define REPRISE_UNROLLED _Pragma("GCC unroll 16")

namespace reprise {
namespace {

// Elements [first, end) of a walk.
struct Range {
  uint32_t first, end;
};

// The taps of a place that lie inside an input of `size`.
constexpr Range taps_inside(const TapWalk& walk, uint32_t place, uint32_t size) {
  const int64_t at = int64_t{place} * walk.stride + walk.offset;
  const auto inside = [&](uint32_t tap) { return static_cast<uint64_t>(at + int64_t{tap} * walk.step) < size; };
  Range taps = {0, walk.taps};
  while (taps.first < taps.end && !inside(taps.first)) ++taps.first;
  while (taps.first < taps.end && !inside(taps.end - 1)) --taps.end;
  return taps;
}

// The places all of whose taps lie inside: they are neighbours.
constexpr Range places_inside(const TapWalk& walk, uint32_t size) {
  const auto inside = [&](uint32_t place) {
    const Range taps = taps_inside(walk, place, size);
    return taps.first == 0 && taps.end == walk.taps;
  };
  Range places = {0, walk.places};
  while (places.first < places.end && !inside(places.first)) ++places.first;
  while (places.first < places.end && !inside(places.end - 1)) --places.end;
  return places;
}

// ---- gathering: forward, and the gradient of the data ----

// One dimension of a part of the output: place a of the walk is element first + a * apart of the whole, tap t is tap + tap_step * t of the window.
struct GatherAxis {
  TapWalk walk;
  uint32_t size;  // of the input
  uint32_t first, apart, tap, tap_step;
};
constexpr GatherAxis axis_of(const TapWalk& forward, uint32_t size) { return {forward, size, 0, 1, 0, 1}; }
constexpr GatherAxis axis_of(const Phase& p, uint32_t size, uint32_t stride) { return {p.walk, size, p.first, stride, p.tap, p.tap_step}; }

template <typename Stored>
struct Gather {
  Stored* out;
  const Stored* in;
  const float* weights;        // [tap][j][C]
  const float* bias;           // [C * out_each], or null
  uint32_t C, kernel_w;
  uint32_t in_each, out_each;  // channels of a pixel for each of C: one of the two is 1; the input's are summed
  bool accumulate;
  GatherAxis rows, columns;
  uint64_t out_image, out_row, in_image, in_row;  // elements

  int64_t in_pixel() const { return int64_t{C} * in_each; }
  uint64_t out_pixel() const { return uint64_t{C} * out_each; }
};

// A row of places: where it writes, and the place of what tap (0, 0) of its first place reads, which may lie outside.
template <typename Stored>
struct GatherRow {
  Stored* out;
  int64_t in;
  Range taps;
};

// Channels [c, c + kVectors * kLanes) of places [b, b + kPixels), output j of each channel, from taps `across` of each row of taps. More than one
// lane only where a pixel's next element is the next channel's.
template <int kLanes, int kVectors, int kPixels, typename Stored>
REPRISE_INLINE void gather_tile(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across, uint32_t b, uint32_t c, uint32_t j) {
  using Vector = typename VectorOf<kLanes>::type;
  const int64_t in_pixel = g.in_pixel(), next = g.columns.walk.stride * in_pixel;
  Vector sum[kPixels][kVectors];
  REPRISE_UNROLLED for (int v = 0; v < kVectors; ++v) {
    Vector start = {};
    if (g.bias != nullptr) read_vector<kLanes>(start, g.bias + uint64_t{c} * g.out_each + j + v * kLanes);
    REPRISE_UNROLLED for (int i = 0; i < kPixels; ++i) sum[i][v] = start;
  }
  for (uint32_t k = 0; k < g.in_each; ++k) {
    for (uint32_t t = row.taps.first; t < row.taps.end; ++t) {
      const int64_t line = row.in + int64_t{t} * g.rows.walk.step * static_cast<int64_t>(g.in_row) + b * next + int64_t{c} * g.in_each + k;
      const uint32_t tap = (g.rows.tap + g.rows.tap_step * t) * g.kernel_w + g.columns.tap;
      for (uint32_t u = across.first; u < across.end; ++u) {
        const Stored* x = g.in + (line + int64_t{u} * g.columns.walk.step * in_pixel);
        const float* w = g.weights + (uint64_t{tap + g.columns.tap_step * u} * (g.in_each * g.out_each) + j + k) * g.C + c;
        REPRISE_UNROLLED for (int v = 0; v < kVectors; ++v) {
          Vector weight;
          read_vector<kLanes>(weight, w + v * kLanes);
          REPRISE_UNROLLED for (int i = 0; i < kPixels; ++i) {
            Vector value;
            read_vector<kLanes>(value, x + i * next + v * kLanes);
            sum[i][v] += value * weight;
          }
        }
      }
    }
  }
  const uint64_t apart = g.columns.apart * g.out_pixel();
  Stored* to = row.out + b * apart + uint64_t{c} * g.out_each + j;
  REPRISE_UNROLLED for (int i = 0; i < kPixels; ++i) {
    REPRISE_UNROLLED for (int v = 0; v < kVectors; ++v) {
      Stored* place = to + static_cast<uint64_t>(i) * apart + v * kLanes;
      if (g.accumulate) {
        Vector old;
        read_vector<kLanes>(old, place);
        sum[i][v] = old + sum[i][v];
      }
      write_vector<kLanes>(place, sum[i][v]);
    }
  }
}

// All channels of kPixels places.
template <int kLanes, int kPixels, typename Stored>
REPRISE_INLINE void gather_pixels(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across, uint32_t b) {
  uint32_t c = 0;
  if (g.in_each == 1 && g.out_each == 1) {
    for (; c + 2 * kLanes <= g.C; c += 2 * kLanes) gather_tile<kLanes, 2, kPixels>(g, row, across, b, c, 0);
    for (; c + kLanes <= g.C; c += kLanes) gather_tile<kLanes, 1, kPixels>(g, row, across, b, c, 0);
    if constexpr (kLanes > 8) {
      for (; c + 8 <= g.C; c += 8) gather_tile<8, 1, kPixels>(g, row, across, b, c, 0);
    }
    if constexpr (kLanes > 4) {
      for (; c + 4 <= g.C; c += 4) gather_tile<4, 1, kPixels>(g, row, across, b, c, 0);
    }
  }
  for (; c < g.C; ++c) {
    for (uint32_t j = 0; j < g.out_each; ++j) gather_tile<1, 1, kPixels>(g, row, across, b, c, j);
  }
}

// Row place a of image n.
template <int kLanes, typename Stored>
REPRISE_INLINE void gather_row_body(const Gather<Stored>& g, uint32_t n, uint32_t a) {
  constexpr uint32_t kPixels = 4;
  const Range whole = places_inside(g.columns.walk, g.columns.size);
  const TapWalk &rows = g.rows.walk, &columns = g.columns.walk;
  const GatherRow<Stored> row = {
      .out = g.out + n * g.out_image + (g.rows.first + uint64_t{a} * g.rows.apart) * g.out_row + g.columns.first * g.out_pixel(),
      .in = static_cast<int64_t>(n * g.in_image) + (int64_t{a} * rows.stride + rows.offset) * static_cast<int64_t>(g.in_row) +
            columns.offset * g.in_pixel(),
      .taps = taps_inside(rows, a, g.rows.size)};
  for (uint32_t b = 0; b < columns.places;) {
    if (b >= whole.first && b + kPixels <= whole.end) {
      gather_pixels<kLanes, kPixels>(g, row, {0, columns.taps}, b);
      b += kPixels;
    } else {
      gather_pixels<kLanes, 1>(g, row, taps_inside(columns, b, g.columns.size), b);
      ++b;
    }
  }
}
REPRISE_STORAGE_LEVELS(gather_row, gather_row_body<kLanes>, (const Gather<Stored>& g, uint32_t n, uint32_t a), (g, n, a))

// Rows that a worker takes together, so that it finds in its cache what they share.
constexpr Partition rows_together(uint64_t rows, uint64_t elements) { return {rows, larger(4, 4 * kBlockElements / larger(1, elements))}; }

constexpr uint64_t kChannelsTogether = 64;  // of a matrix that is transposed

// weights[tap][j][C] of w[C * m][taps].
void lay_weights(const KernelContext& context, const ConvShape& s, const float* w, float* weights) {
  const uint32_t taps = uint32_t{s.window.kernel_h} * s.window.kernel_w, m = s.group_outputs();
  for_each_piece(*context.workers, {s.C, kChannelsTogether}, [&](uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < taps * m; ++i) {
      for (uint64_t c = begin; c < end; ++c) weights[uint64_t{i} * s.C + c] = w[(c * m + i % m) * taps + i / m];
    }
  });
}

// ---- the gradient of the weight ----

template <typename Stored>
struct TapSums {
  const Stored *x, *dy;
  uint32_t C, each, kernel_w;
  TapWalk rows, columns;
  uint32_t H, W;
  Range whole;  // outputs of a row that have all their taps
};

// kTaps sums over `count` neighbouring outputs, from what the first tap of the first one reads on: added to sums[tap][j][C].
template <int kLanes, int kTaps, typename Stored>
REPRISE_INLINE void add_taps(float* sums, const TapSums<Stored>& s, const Stored* x, const Stored* dy, uint32_t count) {
  using Vector = typename VectorOf<kLanes>::type;
  const int64_t next = int64_t{s.columns.stride} * s.C, step = int64_t{s.columns.step} * s.C;
  const uint64_t next_dy = uint64_t{s.C} * s.each, next_sum = next_dy;
  Vector sum[kTaps] = {};
  for (uint32_t q = 0; q < count; ++q, x += next, dy += next_dy) {
    Vector gradient;
    read_vector<kLanes>(gradient, dy);
    REPRISE_UNROLLED for (int i = 0; i < kTaps; ++i) {
      Vector value;
      read_vector<kLanes>(value, x + i * step);
      sum[i] += value * gradient;
    }
  }
  REPRISE_UNROLLED for (int i = 0; i < kTaps; ++i) {
    Vector before;
    read_vector<kLanes>(before, sums + static_cast<uint64_t>(i) * next_sum);
    write_vector<kLanes>(sums + static_cast<uint64_t>(i) * next_sum, before + sum[i]);
  }
}

// Some outputs of one row that have the same taps.
struct OutputRun {
  uint64_t dy;  // places of the first one's, and of what its tap (0, 0) reads
  int64_t x;
  uint32_t count;
  Range down, across;
};

// Output j of channels [c, c + kLanes).
template <int kLanes, typename Stored>
REPRISE_INLINE void add_run(float* sums, const TapSums<Stored>& s, const OutputRun& run, uint32_t c, uint32_t j) {
  const uint64_t line = uint64_t{s.C} * s.each;
  const Stored* dy = s.dy + run.dy + uint64_t{c} * s.each + j;
  for (uint32_t t = run.down.first; t < run.down.end; ++t) {
    for (uint32_t u = run.across.first, left = run.across.end - u; left > 0; left = run.across.end - u) {
      const Stored* x = s.x + (run.x + (int64_t{t} * s.rows.step * s.W + int64_t{u} * s.columns.step) * s.C + c);
      float* to = sums + (uint64_t{t} * s.kernel_w + u) * line + uint64_t{j} * s.C + c;
      if (left >= 5) {
        add_taps<kLanes, 5>(to, s, x, dy, run.count), u += 5;
      } else if (left >= 3) {
        add_taps<kLanes, 3>(to, s, x, dy, run.count), u += 3;
      } else {
        add_taps<kLanes, 1>(to, s, x, dy, run.count), u += 1;
      }
    }
  }
}

template <int kLanes, typename Stored>
REPRISE_INLINE void add_channels(float* sums, const TapSums<Stored>& s, const OutputRun& run) {
  uint32_t c = 0;
  if (s.each == 1) {
    for (; c + kLanes <= s.C; c += kLanes) add_run<kLanes>(sums, s, run, c, 0);
    if constexpr (kLanes > 8) {
      for (; c + 8 <= s.C; c += 8) add_run<8>(sums, s, run, c, 0);
    }
    if constexpr (kLanes > 4) {
      for (; c + 4 <= s.C; c += 4) add_run<4>(sums, s, run, c, 0);
    }
  }
  for (; c < s.C; ++c) {
    for (uint32_t j = 0; j < s.each; ++j) add_run<1>(sums, s, run, c, j);
  }
}

// Row p of image n of the outputs: a few neighbours at a time, all channels, which is nearly the order of memory.
template <int kLanes, typename Stored>
REPRISE_INLINE void add_row_body(float* sums, const TapSums<Stored>& s, uint32_t n, uint32_t p) {
  constexpr uint32_t kTogether = 16;
  const TapWalk &rows = s.rows, &columns = s.columns;
  const int64_t first_row = int64_t{n} * s.H + int64_t{p} * rows.stride + rows.offset;
  for (uint32_t q = 0; q < columns.places;) {
    const bool is_whole = q >= s.whole.first && q < s.whole.end;
    const OutputRun run = {
        .dy = ((uint64_t{n} * rows.places + p) * columns.places + q) * s.C * s.each,
        .x = (first_row * s.W + int64_t{q} * columns.stride + columns.offset) * s.C,
        .count = is_whole ? static_cast<uint32_t>(smaller(kTogether, s.whole.end - q)) : 1,
        .down = taps_inside(rows, p, s.H),
        .across = is_whole ? Range{0, columns.taps} : taps_inside(columns, q, s.W)};
    add_channels<kLanes>(sums, s, run);
    q += run.count;
  }
}
REPRISE_STORAGE_LEVELS(add_row, add_row_body<kLanes>, (float* sums, const TapSums<Stored>& s, uint32_t n, uint32_t p), (sums, s, n, p))

// dw[C * m][taps] (+)= the parts' sums[tap][j][C], in their order.
void add_parts(const KernelContext& context, const ConvShape& s, float* dw, bool accumulate, const float* sums, uint32_t parts) {
  const uint32_t taps = uint32_t{s.window.kernel_h} * s.window.kernel_w, m = s.group_outputs();
  const uint64_t part_floats = depthwise_weights_bytes(conv_weights(s)) / sizeof(float);
  for_each_piece(*context.workers, {s.C, kChannelsTogether}, [&](uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < taps * m; ++i) {
      for (uint64_t c = begin; c < end; ++c) {
        float sum = sums[uint64_t{i} * s.C + c];
        for (uint32_t part = 1; part < parts; ++part) sum += sums[part * part_floats + uint64_t{i} * s.C + c];
        float& to = dw[(c * m + i % m) * taps + i / m];
        to = accumulate ? to + sum : sum;
      }
    }
  });
}

}  // namespace

template <typename Stored>
void depthwise_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args, const OutputStatistics<Stored>* statistics) {
  const ConvShape& s = args.shape;
  float* weights = static_cast<float*>(args.scratch);
  lay_weights(context, s, args.w.f32(), weights);
  const uint64_t in_row = uint64_t{s.W} * s.C, out_row = uint64_t{s.Q} * s.K;
  const Gather<Stored> g = {.out = args.y, .in = args.x, .weights = weights, .bias = args.b, .C = s.C, .kernel_w = s.window.kernel_w,
                            .in_each = 1, .out_each = s.group_outputs(), .accumulate = false,
                            .rows = axis_of(forward_walk(s.window.rows(), s.P), s.H),
                            .columns = axis_of(forward_walk(s.window.columns(), s.Q), s.W),
                            .out_image = s.P * out_row, .out_row = out_row, .in_image = s.H * in_row, .in_row = in_row};
  for_each_piece(*context.workers, rows_together(uint64_t{s.N} * s.P, out_row), [&](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row) {
      gather_row(cpu_machine(context).level, g, static_cast<uint32_t>(row / s.P), static_cast<uint32_t>(row % s.P));
    }
    if (statistics != nullptr) statistics->written(begin * s.Q, end * s.Q, s.K);
  });
}

template <typename Stored>
void depthwise_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  float* weights = static_cast<float*>(args.scratch);
  lay_weights(context, s, args.w.f32(), weights);
  const uint64_t in_row = uint64_t{s.Q} * s.K, out_row = uint64_t{s.W} * s.C;
  const Gather<Stored> whole = {.out = args.dx, .in = args.dy, .weights = weights, .bias = args.b, .C = s.C, .kernel_w = s.window.kernel_w,
                                .in_each = s.group_outputs(), .out_each = 1, .accumulate = args.accumulate_dx, .rows = {}, .columns = {},
                                .out_image = s.H * out_row, .out_row = out_row, .in_image = s.P * in_row, .in_row = in_row};
  for_each_piece(*context.workers, rows_together(uint64_t{s.N} * s.H, out_row), [&](uint64_t begin, uint64_t end) {
    Gather<Stored> g = whole;
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t n = static_cast<uint32_t>(row / s.H), h = static_cast<uint32_t>(row % s.H), stride_h = s.window.stride_h, stride_w = s.window.stride_w;
      g.rows = axis_of(phase_of(s.H, s.window.rows(), h % stride_h), s.P, stride_h);
      for (uint32_t column = 0; column < smaller(stride_w, s.W); ++column) {
        g.columns = axis_of(phase_of(s.W, s.window.columns(), column), s.Q, stride_w);
        gather_row(cpu_machine(context).level, g, n, h / stride_h);
      }
    }
  });
}

template <typename Stored>
void depthwise_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const TapWalk rows = forward_walk(s.window.rows(), s.P), columns = forward_walk(s.window.columns(), s.Q);
  const TapSums<Stored> sums = {.x = args.x, .dy = args.dy, .C = s.C, .each = s.group_outputs(), .kernel_w = s.window.kernel_w, .rows = rows,
                                .columns = columns, .H = s.H, .W = s.W, .whole = places_inside(columns, s.W)};
  float* scratch = static_cast<float*>(args.scratch);
  const uint64_t outputs = uint64_t{s.N} * s.P, part_floats = depthwise_weights_bytes(conv_weights(s)) / sizeof(float);
  const uint32_t parts = static_cast<uint32_t>(smaller(kDepthwiseParts, outputs));
  parallel_for(*context.workers, parts, [&](uint32_t part) {
    float* own = scratch + part * part_floats;
    std::memset(own, 0, conv_weights(s) * sizeof(float));
    for (uint64_t row = outputs * part / parts; row < outputs * (part + 1) / parts; ++row) {
      add_row(cpu_machine(context).level, own, sums, static_cast<uint32_t>(row / s.P), static_cast<uint32_t>(row % s.P));
    }
  });
  add_parts(context, s, args.dw, args.accumulate_dw, scratch, parts);
}

template void depthwise_forward(const KernelContext&, const ConvForwardArgsOf<float>&, const OutputStatistics<float>*);
template void depthwise_forward(const KernelContext&, const ConvForwardArgsOf<Bf16>&, const OutputStatistics<Bf16>*);
template void depthwise_backward_data(const KernelContext&, const ConvBackwardDataArgsOf<float>&);
template void depthwise_backward_data(const KernelContext&, const ConvBackwardDataArgsOf<Bf16>&);
template void depthwise_backward_weight(const KernelContext&, const ConvBackwardWeightArgsOf<float>&);
template void depthwise_backward_weight(const KernelContext&, const ConvBackwardWeightArgsOf<Bf16>&);

}  // namespace reprise
