// Forward and data gradient of depthwise convolutions. In both, an output element sums the products
// of taps and input elements; TapWalk (conv_rules.h) gives the elements. A "place" is a position of
// the output. Some windows have compiled tiles, in which neighbouring places share the columns of
// the input that they read. All other windows use tiles that read a vector for each tap.
#pragma once

#include "lib/cpu/conv/conv_depthwise_window.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"

namespace reprise::depthwise {

// One dimension of a part of the output. Place a of the part is place first + a * apart of the
// complete dimension. Tap t of `walk` is tap `tap` + tap_step * t of the window.
struct GatherAxis {
  TapWalk walk;
  uint32_t size;  // elements of the input
  uint32_t first, apart, tap, tap_step;
};
constexpr GatherAxis axis_of(const TapWalk& forward, uint32_t size) { return {forward, size, 0, 1, 0, 1}; }
constexpr GatherAxis axis_of(const Phase& p, uint32_t size, uint32_t stride) {
  return {p.walk, size, p.first, stride, p.tap, p.tap_step};
}

// One dimension of the output and the input. If `back` is false, the output is y and the input is x
// of a forward. If `back` is true, the output is dx and the input is dy of a data gradient. `side`
// is the forward's window in both cases.
struct GatherSide {
  WindowSide side;
  uint32_t places, size;  // elements of the output, and of the input
  bool back;

  constexpr uint32_t parts() const { return back ? static_cast<uint32_t>(smaller(side.stride, places)) : 1; }
  constexpr GatherAxis part(uint32_t i) const {
    return back ? axis_of(phase_of(places, side, i), size, side.stride) : axis_of(forward_walk(side, places), size);
  }
};

template <typename Stored>
struct Gather {
  Stored* out;
  const Stored* in;
  const float* weights;  // [tap][j][C]
  const float* bias;     // [C * out_each]; null for none
  uint32_t C;
  // For each of the C channels: its input channels, which are summed, and its output channels. One
  // of the two numbers is 1.
  uint32_t in_each, out_each;
  bool accumulate;
  GatherSide down, across;

  uint64_t out_row() const { return across.places * out_pixel(); }
  int64_t in_row() const { return across.size * in_pixel(); }
  int64_t in_pixel() const { return int64_t{C} * in_each; }
  uint64_t out_pixel() const { return uint64_t{C} * out_each; }
  int64_t tap_floats() const { return int64_t{C} * in_each * out_each; }  // number of weights of one tap
};

// A row of places, or a part of such a row. `in` is the index of the input element that the first
// place reads with column 0 of tap row taps.first. This element may be outside the input.
template <typename Stored>
struct GatherRow {
  Stored* out;
  int64_t in;
  Range taps;
  const GatherAxis &rows, &columns;
  int64_t ahead;  // index of the first element of the input rows that only the next row of places needs
};

constexpr int64_t kCacheLine = 64;

// Prefetches input rows that the next row of places needs and this row does not, at the columns of
// this tile. The other input rows of the next row of places are already in a cache. The hardware
// does not prefetch the new elements: they are read in chunks too short to recognise a pattern.
template <int kElements, int kPixels, typename Stored>
REPRISE_INLINE void fetch_ahead(const Gather<Stored>& g, const GatherRow<Stored>& row, uint32_t b, uint32_t c) {
  const int64_t columns = kPixels * row.columns.walk.stride;
  const Stored* first = g.in + (row.ahead + b * row.columns.walk.stride * g.in_pixel() + int64_t{c} * g.in_each);
  for (int64_t r = 0; r < row.rows.walk.stride; ++r) {
    for (int64_t i = 0; i < columns; ++i) {
      const Stored* line = first + (r * g.in_row() + i * g.in_pixel());
      REPRISE_UNROLLED for (int64_t e = 0; e < kElements; e += kCacheLine / static_cast<int64_t>(sizeof(Stored)))
          __builtin_prefetch(line + e, 0, 2);
    }
  }
}

// Computes output j of channels [c, c + kVectors * kLanes) of places [b, b + kPixels), from taps
// `across` of each row of taps. kLanes > 1 requires that each channel has one input and one output.
template <int kLanes, int kVectors, int kPixels, typename Stored>
REPRISE_INLINE void gather_tile(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across, uint32_t b,
                                uint32_t c, uint32_t j) {
  using Vector = typename VectorOf<kLanes>::type;
  const int64_t in_pixel = g.in_pixel(), next = row.columns.walk.stride * in_pixel;
  Vector sum[kPixels][kVectors];
  REPRISE_UNROLLED for (int v = 0; v < kVectors; ++v) {
    Vector start = {};
    if (g.bias != nullptr) read_vector<kLanes>(start, g.bias + uint64_t{c} * g.out_each + j + v * kLanes);
    REPRISE_UNROLLED for (int i = 0; i < kPixels; ++i) sum[i][v] = start;
  }
  fetch_ahead<kVectors * kLanes, kPixels>(g, row, b, c);
  const int64_t x_down = row.rows.walk.step * g.in_row(), x_across = row.columns.walk.step * in_pixel;
  const int64_t w_across = int64_t{row.columns.tap_step} * g.tap_floats(),
                w_down = int64_t{row.rows.tap_step} * g.across.side.kernel * g.tap_floats();
  const int64_t first_tap = (int64_t{row.rows.tap} * g.across.side.kernel + row.columns.tap) * g.tap_floats() +
                            row.taps.first * w_down + across.first * w_across;
  for (uint32_t k = 0; k < g.in_each; ++k) {
    int64_t x_line = row.in + across.first * x_across + b * next + int64_t{c} * g.in_each + k;
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
  const uint64_t apart = row.columns.apart * g.out_pixel();
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

// Sums that a tile computes at a time. A processor starts two multiply-adds each cycle, and each
// takes four cycles, so eight sums keep it busy. With fewer places, more channels are summed
// together.
constexpr int kSums = 8;

// Computes channels [c, end) in groups of kVectors vectors, while a whole group is left. Returns
// the first channel that is not computed.
template <int kLanes, int kVectors, int kPixels, typename Stored>
REPRISE_INLINE uint32_t gather_channels(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across,
                                        uint32_t b, uint32_t c, uint32_t end) {
  for (; c + kVectors * kLanes <= end; c += kVectors * kLanes)
    gather_tile<kLanes, kVectors, kPixels>(g, row, across, b, c, 0);
  return c;
}

// Computes the given channels of places [b, b + kPixels).
template <int kLanes, int kPixels, typename Stored>
REPRISE_INLINE void gather_pixels(const Gather<Stored>& g, const GatherRow<Stored>& row, const Range& across,
                                  uint32_t b, const Range& channels) {
  uint32_t c = channels.first;
  if (g.in_each == 1 && g.out_each == 1) {
    c = gather_channels<kLanes, kSums / kPixels, kPixels>(g, row, across, b, c, channels.end);
    c = gather_channels<kLanes, 1, kPixels>(g, row, across, b, c, channels.end);
    if constexpr (kLanes > 4) c = gather_channels<4, 1, kPixels>(g, row, across, b, c, channels.end);
  }
  for (; c < channels.end; ++c) {
    for (uint32_t j = 0; j < g.out_each; ++j) gather_tile<1, 1, kPixels>(g, row, across, b, c, j);
  }
}

// Computes one row of places, or one part of such a row.
template <int kLanes, typename Stored>
REPRISE_INLINE void gather_part(const Gather<Stored>& g, const GatherRow<Stored>& row) {
  const TapWalk& columns = row.columns.walk;
  const Range whole = places_inside(columns, row.columns.size);
  // Channels whose weights and pixels L1 keeps from one place to the next.
  constexpr uint32_t kTogether = kSums * kLanes;
  for (uint32_t c = 0; c < g.C; c += kTogether) {
    const Range channels = {c, static_cast<uint32_t>(smaller(c + kTogether, g.C))};
    for (uint32_t b = 0; b < columns.places;) {
      if (b >= whole.first && b + 4 <= whole.end) {
        gather_pixels<kLanes, 4>(g, row, {0, columns.taps}, b, channels);
        b += 4;
      } else {
        gather_pixels<kLanes, 1>(g, row, taps_inside(columns, b, row.columns.size), b, channels);
        ++b;
      }
    }
  }
}

// Indices of the elements at which one row of places writes and reads. Rows are counted over all
// images.
struct RowPlace {
  GatherAxis axis;
  uint64_t out;
  int64_t in;     // start of the input row that taps.first reads; may be outside if `taps` is empty
  int64_t ahead;  // start of the input rows that only the next row of places needs
  Range taps;
};
template <typename Stored>
constexpr RowPlace row_place(const Gather<Stored>& g, uint64_t row) {
  const uint64_t n = row / g.down.places;
  const uint32_t place = static_cast<uint32_t>(row % g.down.places), parts = g.down.parts(), a = place / parts;
  const GatherAxis axis = g.down.part(place % parts);
  const TapWalk& walk = axis.walk;
  const int64_t first = int64_t{a} * walk.stride + walk.offset, last = first + int64_t{walk.taps - 1} * walk.step;
  const int64_t image = static_cast<int64_t>(n * g.down.size);
  const Range taps = taps_inside(walk, a, g.down.size);
  return {.axis = axis,
          .out = row * g.out_row(),
          .in = (image + first + int64_t{taps.first} * walk.step) * g.in_row(),
          .ahead = (image + (walk.step > 0 ? last : first) + 1) * g.in_row(),
          .taps = taps};
}

// Returns the row in the form that gather_window_tile() needs. A data gradient's row is mirrored,
// so that its taps have ascending columns, as in a forward.
template <typename Stored>
constexpr SharedRow<Stored> shared_row(const Gather<Stored>& g, const RowPlace& at) {
  const int64_t C = g.C, last_column = int64_t{g.across.size} - 1, last_place = int64_t{g.across.places} - 1,
                pad = g.across.side.pad;
  const int64_t tap_row = int64_t{at.axis.tap_step} * g.across.side.kernel * C;
  const bool back = g.across.back;
  return {.out = g.out,
          .in = g.in,
          .weights = g.weights,
          .bias = g.bias,
          .to = static_cast<int64_t>(at.out) + (back ? last_place * C : 0),
          .to_next = back ? -C : C,
          .from = at.in + (back ? last_column * C : 0),
          .from_next = back ? -C : C,
          .from_down = at.axis.walk.step * g.in_row(),
          .tap = int64_t{at.axis.tap} * g.across.side.kernel * C + at.taps.first * tap_row,
          .tap_next = C,
          .tap_down = tap_row,
          .ahead = at.ahead + (back ? last_column * C : 0),
          .ahead_down = g.in_row(),
          .to_down = static_cast<int64_t>(g.out_row()),
          .places = g.across.places,
          .columns = g.across.size,
          .tap_rows = at.taps.end - at.taps.first,
          .ahead_rows = static_cast<uint32_t>(at.axis.walk.stride),
          .offset = back ? int64_t{g.across.side.stride} * last_column - last_place - pad : -pad,
          .accumulate = g.accumulate};
}

// Places of a tile. The sums of these places and the weights of a row of taps fill the registers of
// most levels.
constexpr int kPlaces = 8;

// Computes a whole row, in the order of memory. The last vector of channels overlaps channels that
// are already computed. Always returns true.
template <typename Window, int kLanes, typename Stored>
REPRISE_INLINE bool gather_window(const SharedRow<Stored>& row, uint32_t C) {
  const int64_t first = Window::first_place(row.offset), tiles = (row.places - first + kPlaces - 1) / kPlaces;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t place = first + (row.to_next < 0 ? tiles - 1 - i : i) * kPlaces;
    for (uint32_t c = 0; c < C; c += kLanes) {
      const uint32_t at = static_cast<uint32_t>(smaller(c, C - kLanes));
      gather_window_tile<Window, kLanes, kPlaces>(row, place, at, static_cast<int32_t>(c - at));
    }
  }
  return true;
}

// Computes a row and returns true if its window has a compiled tile and each of at least kLanes
// channels has one input and one output; otherwise returns false.
template <int kLanes, typename Stored>
REPRISE_INLINE bool gather_windows(const Gather<Stored>& g, const SharedRow<Stored>& row) {
  const WindowSide& side = g.across.side;
  if (g.C < kLanes || g.in_each != 1 || g.out_each != 1 || side.dilation != 1 || side.stride > 2) return false;
  const bool plain = side.stride == 1;
  if (side.kernel == 3) {
    if (plain) return gather_window<RowWindow<3, 1, 1>, kLanes>(row, g.C);
    if (g.across.back) return gather_window<RowWindow<3, 1, 2>, kLanes>(row, g.C);
    return gather_window<RowWindow<3, 2, 1>, kLanes>(row, g.C);
  }
  if (side.kernel == 5) {
    if (plain) return gather_window<RowWindow<5, 1, 1>, kLanes>(row, g.C);
    if (g.across.back) return gather_window<RowWindow<5, 1, 2>, kLanes>(row, g.C);
    return gather_window<RowWindow<5, 2, 1>, kLanes>(row, g.C);
  }
  return side.kernel == 7 && plain && gather_window<RowWindow<7, 1, 1>, kLanes>(row, g.C);
}

// Computes rows [begin, end) of places, counted over all images.
template <int kLanes, typename Stored>
REPRISE_INLINE void gather_rows_body(const Gather<Stored>& g, uint64_t begin, uint64_t end) {
  for (; begin < end; ++begin) {
    const RowPlace at = row_place(g, begin);
    if constexpr (kLanes >= kWindowLanes) {
      if (gather_windows<kLanes>(g, shared_row(g, at))) continue;
    }
    for (uint32_t part = 0; part < g.across.parts(); ++part) {
      const GatherAxis columns = g.across.part(part);
      gather_part<kLanes>(g, {.out = g.out + (at.out + columns.first * g.out_pixel()),
                              .in = at.in + columns.walk.offset * g.in_pixel(),
                              .taps = at.taps,
                              .rows = at.axis,
                              .columns = columns,
                              .ahead = at.ahead});
    }
  }
}
REPRISE_STORAGE_LEVELS(gather_rows, gather_rows_body<kLanes>, (const Gather<Stored>& g, uint64_t begin, uint64_t end),
                       (g, begin, end))

}  // namespace reprise::depthwise
