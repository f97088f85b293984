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
  int64_t tap_floats() const { return int64_t{C} * in_each * out_each; }  // weights of one tap
};

// A row of places: where it writes, and the place of what tap (0, 0) of its first place reads, which may lie outside.
template <typename Stored>
struct GatherRow {
  Stored* out;
  int64_t in;
  Range taps;
  int64_t ahead;  // the first place of the rows that the next row of places reads first
};

constexpr int64_t kCacheLine = 64;

// Fetches what lies where this tile would be in the rows ahead. Taps look back at rows that are in a cache; only what is new comes from memory, in
// pieces too short for a processor to see an order in them.
template <int kElements, int kPixels, typename Stored>
REPRISE_INLINE void fetch_ahead(const Gather<Stored>& g, const GatherRow<Stored>& row, uint32_t b, uint32_t c) {
  const int64_t columns = kPixels * g.columns.walk.stride;
  const Stored* first = g.in + (row.ahead + b * g.columns.walk.stride * g.in_pixel() + int64_t{c} * g.in_each);
  for (int64_t r = 0; r < g.rows.walk.stride; ++r) {
    for (int64_t i = 0; i < columns; ++i) {
      const Stored* line = first + (r * static_cast<int64_t>(g.in_row) + i * g.in_pixel());
      REPRISE_UNROLLED for (int64_t e = 0; e < kElements; e += kCacheLine / static_cast<int64_t>(sizeof(Stored))) __builtin_prefetch(line + e, 0, 2);
    }
  }
}

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
  fetch_ahead<kVectors * kLanes, kPixels>(g, row, b, c);
  const int64_t x_down = g.rows.walk.step * static_cast<int64_t>(g.in_row), x_across = g.columns.walk.step * in_pixel;
  const int64_t w_across = int64_t{g.columns.tap_step} * g.tap_floats(), w_down = int64_t{g.rows.tap_step} * g.kernel_w * g.tap_floats();
  const int64_t first_tap = (int64_t{g.rows.tap} * g.kernel_w + g.columns.tap) * g.tap_floats() + row.taps.first * w_down + across.first * w_across;
  for (uint32_t k = 0; k < g.in_each; ++k) {
    int64_t x_line = row.in + row.taps.first * x_down + across.first * x_across + b * next + int64_t{c} * g.in_each + k;
    int64_t w_line = first_tap + int64_t{j + k} * g.C + c;
    for (uint32_t t = row.taps.first; t < row.taps.end; ++t, x_line += x_down, w_line += w_down) {
      int64_t x = x_line, w = w_line;
      for (uint32_t u = across.first; u < across.end; ++u, x += x_across, w += w_across) {
        REPRISE_UNROLLED for (int v = 0; v < kVectors; ++v) {
          Vector weight;
          read_vector<kLanes>(weight, g.weights + w + v * kLanes);
          REPRISE_UNROLLED for (int i = 0; i < kPixels; ++i) {
            Vector value;
            read_vector<kLanes>(value, g.in + (x + i * next + v * kLanes));
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

// Sums at a time: a processor begins two each cycle, of which each takes four. Of few places more channels are summed together.
constexpr int kSums = 8;

// Channels [c, end) as far as kVectors vectors at a time go, then by half as many; returns the first that is left.
template <int kLanes, int kVectors, int kPixels, typename Stored>
REPRISE_INLINE uint32_t gather_channels(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across, uint32_t b, uint32_t c, uint32_t end) {
  for (; c + kVectors * kLanes <= end; c += kVectors * kLanes) gather_tile<kLanes, kVectors, kPixels>(g, row, across, b, c, 0);
  if constexpr (kVectors > 1) return gather_channels<kLanes, kVectors / 2, kPixels>(g, row, across, b, c, end);
  return c;
}

// These channels of kPixels places.
template <int kLanes, int kPixels, typename Stored>
REPRISE_INLINE void gather_pixels(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across, uint32_t b, const Range& channels) {
  uint32_t c = channels.first;
  if (g.in_each == 1 && g.out_each == 1) {
    c = gather_channels<kLanes, kSums / kPixels, kPixels>(g, row, across, b, c, channels.end);
    if constexpr (kLanes > 8) c = gather_channels<8, 1, kPixels>(g, row, across, b, c, channels.end);
    if constexpr (kLanes > 4) c = gather_channels<4, 1, kPixels>(g, row, across, b, c, channels.end);
  }
  for (; c < channels.end; ++c) {
    for (uint32_t j = 0; j < g.out_each; ++j) gather_tile<1, 1, kPixels>(g, row, across, b, c, j);
  }
}

// Row place a of image n.
template <int kLanes, typename Stored>
REPRISE_INLINE void gather_row_body(const Gather<Stored>& g, uint32_t n, uint32_t a) {
  const Range whole = places_inside(g.columns.walk, g.columns.size);
  const TapWalk &rows = g.rows.walk, &columns = g.columns.walk;
  const int64_t first = int64_t{a} * rows.stride + rows.offset, last = first + int64_t{rows.taps - 1} * rows.step;
  const GatherRow<Stored> row = {
      .out = g.out + n * g.out_image + (g.rows.first + uint64_t{a} * g.rows.apart) * g.out_row + g.columns.first * g.out_pixel(),
      .in = static_cast<int64_t>(n * g.in_image) + first * static_cast<int64_t>(g.in_row) + columns.offset * g.in_pixel(),
      .taps = taps_inside(rows, a, g.rows.size),
      .ahead = static_cast<int64_t>(n * g.in_image) + ((rows.step > 0 ? last : first) + 1) * static_cast<int64_t>(g.in_row)};
  constexpr uint32_t kTogether = kSums * kLanes;  // channels, whose weights and pixels the first cache keeps from one place to the next
  for (uint32_t c = 0; c < g.C; c += kTogether) {
    const Range channels = {c, static_cast<uint32_t>(smaller(c + kTogether, g.C))};
    for (uint32_t b = 0; b < columns.places;) {
      if (b >= whole.first && b + 4 <= whole.end) {
        gather_pixels<kLanes, 4>(g, row, {0, columns.taps}, b, channels);
        b += 4;
      } else {
        gather_pixels<kLanes, 1>(g, row, taps_inside(columns, b, g.columns.size), b, channels);
        ++b;
      }
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

// Some neighbouring outputs of one row.
struct OutputRun {
  uint32_t first, count;
  uint64_t dy;  // places of the first one's, and of what its tap (0, 0) reads, which may lie outside
  int64_t x;
  int64_t ahead;      // the place below the last row that tap (0, 0)'s window reads
  Range down, whole;  // whole: those of the run, from 0, that have all their taps across
};

// Taps [u, u + kTaps) of rows [t, t + kRows) of taps, for output j of channels [c, c + kLanes).
struct TapBlock {
  uint32_t t, u, c, j;
};

// Output q of the run, for those of the block's taps that are in `taps`.
template <int kLanes, int kRows, int kTaps, typename Stored>
REPRISE_INLINE void add_output(typename VectorOf<kLanes>::type (&sum)[kRows][kTaps], const TapSums<Stored>& s, const Stored* dy, const Stored* x,
                               const Range& taps, uint32_t u) {
  const int64_t across = int64_t{s.columns.step} * s.C, down = int64_t{s.rows.step} * s.W * s.C;
  typename VectorOf<kLanes>::type gradient;
  read_vector<kLanes>(gradient, dy);
  REPRISE_UNROLLED for (int i = 0; i < kTaps; ++i) {
    if (u + static_cast<uint32_t>(i) < taps.first || u + static_cast<uint32_t>(i) >= taps.end) continue;
    REPRISE_UNROLLED for (int r = 0; r < kRows; ++r) {
      typename VectorOf<kLanes>::type value;
      read_vector<kLanes>(value, x + (r * down + i * across));
      sum[r][i] += value * gradient;
    }
  }
}

// The block's sums over the outputs of the run, added to sums[tap][j][C].
template <int kLanes, int kRows, int kTaps, typename Stored>
REPRISE_INLINE void add_block(float* sums, const TapSums<Stored>& s, const OutputRun& run, const TapBlock& at) {
  using Vector = typename VectorOf<kLanes>::type;
  const int64_t next = int64_t{s.columns.stride} * s.C, line = int64_t{s.C} * s.each;
  const int64_t first = (run.x + int64_t{at.t} * s.rows.step * s.W + int64_t{at.u} * s.columns.step) * s.C + at.c;
  const Stored* dy = s.dy + run.dy * static_cast<uint64_t>(line) + uint64_t{at.c} * s.each + at.j;
  Vector sum[kRows][kTaps] = {};
  for (uint32_t q = 0; q < run.count; ++q) {
    if (q >= run.whole.first && q < run.whole.end) {
      add_output<kLanes, kRows, kTaps>(sum, s, dy + q * line, s.x + (first + q * next), {0, s.columns.taps}, at.u);
    } else {
      add_output<kLanes, kRows, kTaps>(sum, s, dy + q * line, s.x + (first + q * next), taps_inside(s.columns, run.first + q, s.W), at.u);
    }
  }
  REPRISE_UNROLLED for (int r = 0; r < kRows; ++r) {
    REPRISE_UNROLLED for (int i = 0; i < kTaps; ++i) {
      float* to = sums + ((uint64_t{at.t} + r) * s.kernel_w + at.u + i) * static_cast<uint64_t>(line) + uint64_t{at.j} * s.C + at.c;
      Vector before;
      read_vector<kLanes>(before, to);
      write_vector<kLanes>(to, before + sum[r][i]);
    }
  }
}

// kTaps taps of all rows, kRows rows at a time: so many sums that one need not wait for another, and so few that they stay in registers.
template <int kLanes, int kRows, int kTaps, typename Stored>
REPRISE_INLINE void add_taps(float* sums, const TapSums<Stored>& s, const OutputRun& run, TapBlock at) {
  at.t = run.down.first;
  if constexpr (kRows > 1) {
    for (; at.t + kRows <= run.down.end; at.t += kRows) add_block<kLanes, kRows, kTaps>(sums, s, run, at);
  }
  for (; at.t < run.down.end; ++at.t) add_block<kLanes, 1, kTaps>(sums, s, run, at);
}

// Fetches what the same channels of the next row's run read first.
template <typename Stored>
REPRISE_INLINE void fetch_next_run(const TapSums<Stored>& s, const OutputRun& run, uint32_t c) {
  const uint64_t line = uint64_t{s.C} * s.each;
  const Stored* dy = s.dy + ((run.dy + s.columns.places) * line + uint64_t{c} * s.each);
  for (uint32_t q = 0; q < run.count; ++q) __builtin_prefetch(dy + q * line, 0, 2);
  for (int64_t r = 0; r < s.rows.stride; ++r) {
    for (int64_t i = 0; i < int64_t{run.count} * s.columns.stride; ++i) __builtin_prefetch(s.x + ((run.ahead + r * s.W + i) * s.C + c), 0, 2);
  }
}

// Output j of channels [c, c + kLanes), kRows of three taps together.
template <int kLanes, int kRows, typename Stored>
REPRISE_INLINE void add_run(float* sums, const TapSums<Stored>& s, const OutputRun& run, uint32_t c, uint32_t j) {
  fetch_next_run(s, run, c);
  for (uint32_t u = 0, left = s.columns.taps; left > 0; left = s.columns.taps - u) {
    const TapBlock at = {0, u, c, j};
    if (left >= 7) {
      add_taps<kLanes, 1, 7>(sums, s, run, at), u += 7;
    } else if (left >= 5) {
      add_taps<kLanes, (kRows > 1 ? 2 : 1), 5>(sums, s, run, at), u += 5;
    } else if (left >= 3) {
      add_taps<kLanes, kRows, 3>(sums, s, run, at), u += 3;
    } else {
      add_taps<kLanes, 1, 1>(sums, s, run, at), u += 1;
    }
  }
}

template <int kLanes, typename Stored>
REPRISE_INLINE void add_channels(float* sums, const TapSums<Stored>& s, const OutputRun& run) {
  uint32_t c = 0;
  if (s.each == 1) {
    for (; c + kLanes <= s.C; c += kLanes) add_run<kLanes, 3>(sums, s, run, c, 0);
    if constexpr (kLanes > 8) {
      for (; c + 8 <= s.C; c += 8) add_run<8, 1>(sums, s, run, c, 0);
    }
    if constexpr (kLanes > 4) {
      for (; c + 4 <= s.C; c += 4) add_run<4, 1>(sums, s, run, c, 0);
    }
  }
  for (; c < s.C; ++c) {
    for (uint32_t j = 0; j < s.each; ++j) add_run<1, 1>(sums, s, run, c, j);
  }
}

// Row p of image n of the outputs: a few neighbours at a time, all channels, which is nearly the order of memory.
template <int kLanes, typename Stored>
REPRISE_INLINE void add_row_body(float* sums, const TapSums<Stored>& s, uint32_t n, uint32_t p) {
  constexpr uint32_t kTogether = 16;
  const TapWalk &rows = s.rows, &columns = s.columns;
  const int64_t first_row = int64_t{n} * s.H + int64_t{p} * rows.stride + rows.offset;
  for (uint32_t q = 0; q < columns.places; q += kTogether) {
    const auto within = [&](uint32_t place) { return place < q ? 0 : place - q; };
    add_channels<kLanes>(sums, s, {.first = q,
                                   .count = static_cast<uint32_t>(smaller(kTogether, columns.places - q)),
                                   .dy = (uint64_t{n} * rows.places + p) * columns.places + q,
                                   .x = first_row * s.W + int64_t{q} * columns.stride + columns.offset,
                                   .ahead = (first_row + int64_t{rows.taps - 1} * rows.step + 1) * s.W + int64_t{q} * columns.stride,
                                   .down = taps_inside(rows, p, s.H),
                                   .whole = {within(s.whole.first), within(s.whole.end)}});
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
