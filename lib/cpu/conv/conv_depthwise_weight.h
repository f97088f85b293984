// The gradient of a depthwise convolution's weight: for each tap of a channel, the sum over outputs
// of dy times the tap's input. A few neighbouring outputs at a time are summed in registers, then
// added to the total sums.
#pragma once

#include "lib/cpu/conv/conv_depthwise_window.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"

namespace reprise::depthwise {

template <typename Stored>
struct TapSums {
  const Stored *x, *dy;
  uint32_t C, each, kernel_w;
  TapWalk rows, columns;
  uint32_t H, W;
  Range whole;  // the outputs of a row whose taps are all inside x
};

// A run of neighbouring outputs in one row.
struct OutputRun {
  uint32_t first, count;
  // Index of the first output's pixel in dy, and of the pixel of x that the output's tap (0, 0)
  // reads. The pixel of x may be outside the image.
  uint64_t dy;
  int64_t x;
  int64_t ahead;  // index of the pixel below the last row of pixels that the run's windows read
  // `down`: the rows of taps that are inside x. `whole`: the outputs, counted from `first`, whose
  // columns of taps are all inside x.
  Range down, whole;
};

// First indices of a block of sums: taps [u, u + kTaps) of tap rows [t, t + kRows), for output j of
// channels [c, c + kLanes).
struct TapBlock {
  uint32_t t, u, c, j;
};

// Adds to `sum` the products of one output's dy and the inputs of the block's taps. Skips taps
// outside `taps`. `u` is the block's first tap.
template <int kLanes, int kRows, int kTaps, typename Stored>
REPRISE_INLINE void add_output(typename VectorOf<kLanes>::type (&sum)[kRows][kTaps], const TapSums<Stored>& s,
                               const Stored* dy, const Stored* x, const Range& taps, uint32_t u) {
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

// Adds the block's sums over the outputs of the run to sums[tap][j][C].
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
      add_output<kLanes, kRows, kTaps>(sum, s, dy + q * line, s.x + (first + q * next),
                                       taps_inside(s.columns, run.first + q, s.W), at.u);
    }
  }
  REPRISE_UNROLLED for (int r = 0; r < kRows; ++r) {
    REPRISE_UNROLLED for (int i = 0; i < kTaps; ++i) {
      float* to = sums + ((uint64_t{at.t} + r) * s.kernel_w + at.u + i) * static_cast<uint64_t>(line) +
                  uint64_t{at.j} * s.C + at.c;
      Vector before;
      read_vector<kLanes>(before, to);
      write_vector<kLanes>(to, before + sum[r][i]);
    }
  }
}

// Adds kTaps taps of all rows of taps, kRows rows at a time. There are enough sums that no sum
// waits for another, and few enough that all stay in registers.
template <int kLanes, int kRows, int kTaps, typename Stored>
REPRISE_INLINE void add_taps(float* sums, const TapSums<Stored>& s, const OutputRun& run, TapBlock at) {
  at.t = run.down.first;
  if constexpr (kRows > 1) {
    for (; at.t + kRows <= run.down.end; at.t += kRows) add_block<kLanes, kRows, kTaps>(sums, s, run, at);
  }
  for (; at.t < run.down.end; ++at.t) add_block<kLanes, 1, kTaps>(sums, s, run, at);
}

// Prefetches x and dy of the run that is directly below `run`, in the next row of outputs, at
// channel c.
template <typename Stored>
REPRISE_INLINE void fetch_next_run(const TapSums<Stored>& s, const OutputRun& run, uint32_t c) {
  const uint64_t line = uint64_t{s.C} * s.each;
  const Stored* dy = s.dy + ((run.dy + s.columns.places) * line + uint64_t{c} * s.each);
  for (uint32_t q = 0; q < run.count; ++q) __builtin_prefetch(dy + q * line, 0, 2);
  for (int64_t r = 0; r < s.rows.stride; ++r) {
    for (int64_t i = 0; i < int64_t{run.count} * s.columns.stride; ++i)
      __builtin_prefetch(s.x + ((run.ahead + r * s.W + i) * s.C + c), 0, 2);
  }
}

// Adds the run's products for output j of channels [c, c + kLanes), three taps of kRows rows at a
// time. If kRows > 1, adds seven, then five taps at a time, as long as so many are left.
template <int kLanes, int kRows, typename Stored>
REPRISE_INLINE void add_run(float* sums, const TapSums<Stored>& s, const OutputRun& run, uint32_t c, uint32_t j) {
  fetch_next_run(s, run, c);
  uint32_t u = 0;
  if constexpr (kRows > 1) {
    for (; u + 7 <= s.columns.taps; u += 7) add_taps<kLanes, 1, 7>(sums, s, run, {0, u, c, j});
    for (; u + 5 <= s.columns.taps; u += 5) add_taps<kLanes, 2, 5>(sums, s, run, {0, u, c, j});
  }
  for (; u + 3 <= s.columns.taps; u += 3) add_taps<kLanes, kRows, 3>(sums, s, run, {0, u, c, j});
  for (; u < s.columns.taps; ++u) add_taps<kLanes, 1, 1>(sums, s, run, {0, u, c, j});
}

// Adds the run's sums for rows [t, t + kRows) of taps to sums[tap][C], for channels [c, c +
// kLanes). Leaves the first `kept` channels unchanged, because they are already added.
template <typename Window, int kLanes, typename Stored>
REPRISE_INLINE void add_window_rows(float* sums, const TapSums<Stored>& s, const OutputRun& run, uint32_t t, uint32_t c,
                                    int32_t kept) {
  constexpr int kTaps = Window::kWidth, kRows = kRowsOfSums<kLanes, kTaps>;
  using Vector = typename VectorOf<kLanes>::type;
  const uint32_t rows = bits_inside(int64_t{t} - run.down.first, kRows, run.down.end - run.down.first);
  const Products<Stored> p = {
      .x = s.x, .dy = s.dy, .x_next = s.C, .x_down = int64_t{s.rows.step} * s.W * s.C, .dy_next = s.C};
  const int64_t stride = s.columns.stride, dy = static_cast<int64_t>(run.dy * s.C) + c,
                x = run.x * s.C + t * p.x_down + c;
  const int64_t column = run.first * stride + s.columns.offset;
  Vector sum[kRows][kTaps] = {};
  uint32_t q = 0;
  for (; q + 4 <= run.count; q += 4) {
    const uint32_t read = bits_inside(column + q * stride, Window::columns(4), s.W);
    add_products<Window, kLanes, kRows, 4>(sum, p, dy + q * p.dy_next, x + q * stride * s.C, read, rows);
  }
  if (q + 2 <= run.count) {
    const uint32_t read = bits_inside(column + q * stride, Window::columns(2), s.W);
    add_products<Window, kLanes, kRows, 2>(sum, p, dy + q * p.dy_next, x + q * stride * s.C, read, rows);
    q += 2;
  }
  if (q < run.count) {
    const uint32_t read = bits_inside(column + q * stride, Window::columns(1), s.W);
    add_products<Window, kLanes, kRows, 1>(sum, p, dy + q * p.dy_next, x + q * stride * s.C, read, rows);
  }
  REPRISE_UNROLLED for (int r = 0; r < kRows; ++r) {
    if ((rows >> r & 1) == 0) continue;
    REPRISE_UNROLLED for (int u = 0; u < kTaps; ++u) {
      float* to = sums + ((uint64_t{t} + r) * kTaps + u) * s.C + c;
      Vector before;
      read_vector<kLanes>(before, to);
      add_lanes<kLanes>(sum[r][u], before, kept);
      write_vector<kLanes>(to, sum[r][u]);
    }
  }
}

constexpr uint32_t kRun = 16;  // outputs that are summed in registers before the sums are added to the total

// Returns the run of outputs [q, q + kRun), or those that exist, in row `row`. Rows are counted
// over all images.
template <typename Stored>
constexpr OutputRun run_at(const TapSums<Stored>& s, uint64_t row, uint32_t q) {
  const TapWalk &rows = s.rows, &columns = s.columns;
  const uint32_t p = static_cast<uint32_t>(row % rows.places);
  const int64_t first_row = static_cast<int64_t>(row / rows.places * s.H) + int64_t{p} * rows.stride + rows.offset;
  const auto within = [&](uint32_t place) { return place < q ? 0 : place - q; };
  return {.first = q,
          .count = static_cast<uint32_t>(smaller(kRun, columns.places - q)),
          .dy = row * columns.places + q,
          .x = first_row * s.W + int64_t{q} * columns.stride + columns.offset,
          .ahead = (first_row + int64_t{rows.taps - 1} * rows.step + 1) * s.W + int64_t{q} * columns.stride,
          .down = taps_inside(rows, p, s.H),
          .whole = {within(s.whole.first), within(s.whole.end)}};
}

// Adds a run by the compiled tiles of a window. The last vector overlaps channels that are already
// added. Always returns true.
template <typename Window, int kLanes, typename Stored>
REPRISE_INLINE bool add_window(float* sums, const TapSums<Stored>& s, const OutputRun& run) {
  for (uint32_t c = 0; c < s.C; c += kLanes) {
    const uint32_t at = static_cast<uint32_t>(smaller(c, s.C - kLanes));
    fetch_next_run(s, run, at);
    for (uint32_t t = 0; t < s.rows.taps; t += kRowsOfSums<kLanes, Window::kWidth>) {
      add_window_rows<Window, kLanes>(sums, s, run, t, at, static_cast<int32_t>(c - at));
    }
  }
  return true;
}

// Adds a run if its window has compiled tiles; returns false otherwise.
template <int kLanes, typename Stored>
REPRISE_INLINE bool add_windows(float* sums, const TapSums<Stored>& s, const OutputRun& run) {
  if (s.C < kLanes || s.each != 1 || s.columns.step != 1 || s.columns.stride > 2) return false;
  const bool plain = s.columns.stride == 1;
  if (s.columns.taps == 3) {
    return plain ? add_window<RowWindow<3, 1, 1>, kLanes>(sums, s, run)
                 : add_window<RowWindow<3, 2, 1>, kLanes>(sums, s, run);
  }
  if (s.columns.taps == 5) {
    return plain ? add_window<RowWindow<5, 1, 1>, kLanes>(sums, s, run)
                 : add_window<RowWindow<5, 2, 1>, kLanes>(sums, s, run);
  }
  return s.columns.taps == 7 && plain && add_window<RowWindow<7, 1, 1>, kLanes>(sums, s, run);
}

template <int kLanes, typename Stored>
REPRISE_INLINE void add_channels(float* sums, const TapSums<Stored>& s, const OutputRun& run) {
  uint32_t c = 0;
  if (s.each == 1) {
    for (; c + kLanes <= s.C; c += kLanes) add_run<kLanes, 3>(sums, s, run, c, 0);
    if constexpr (kLanes > 4) {
      for (; c + 4 <= s.C; c += 4) add_run<4, 1>(sums, s, run, c, 0);
    }
  }
  for (; c < s.C; ++c) {
    for (uint32_t j = 0; j < s.each; ++j) add_run<1, 1>(sums, s, run, c, j);
  }
}

// Adds rows [begin, end) of the outputs: run by run, and all channels of a run, which is nearly the
// order of memory.
template <int kLanes, typename Stored>
REPRISE_INLINE void add_rows_body(float* sums, const TapSums<Stored>& s, uint64_t begin, uint64_t end) {
  for (; begin < end; ++begin) {
    for (uint32_t q = 0; q < s.columns.places; q += kRun) {
      const OutputRun run = run_at(s, begin, q);
      if constexpr (kLanes >= kWindowLanes) {
        if (add_windows<kLanes>(sums, s, run)) continue;
      }
      add_channels<kLanes>(sums, s, run);
    }
  }
}
REPRISE_STORAGE_LEVELS(add_rows, add_rows_body<kLanes>,
                       (float* sums, const TapSums<Stored>& s, uint64_t begin, uint64_t end), (sums, s, begin, end))

}  // namespace reprise::depthwise
