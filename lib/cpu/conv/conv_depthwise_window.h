// Windows of a few neighbouring taps along a row. A "place" is a position of the output. A tile of
// neighbouring places loads each column of the input once for all places that share the column. It
// loads the weights once for each row of taps. If each tap loaded its own column, loads would limit
// the speed long before memory does.
//
// Taps, places and columns are compile-time constants, so that all of a tile stays in registers. A
// column outside the input is skipped together with its taps, so edges need no other code.
#pragma once

#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/vector_of.h"

// Unrolls a loop completely, so that the arrays it indexes stay in registers.
#define REPRISE_UNROLLED _Pragma("GCC unroll 32")

namespace reprise::depthwise {

// A range [first, end) of taps, places or channels.
struct Range {
  uint32_t first, end;
};

// Returns the taps of a place that are inside an input of `size`.
constexpr Range taps_inside(const TapWalk& walk, uint32_t place, uint32_t size) {
  const int64_t at = int64_t{place} * walk.stride + walk.offset;
  const auto inside = [&](uint32_t tap) { return static_cast<uint64_t>(at + int64_t{tap} * walk.step) < size; };
  Range taps = {0, walk.taps};
  while (taps.first < taps.end && !inside(taps.first)) ++taps.first;
  while (taps.first < taps.end && !inside(taps.end - 1)) --taps.end;
  return taps;
}

// Returns the places whose taps are all inside the input; they are contiguous.
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

// Relates places, taps and columns, counted from the first place and column of a tile: column *
// kPlaceStep = place * kStride + tap. Either kPlaceStep or kStride is 1. In a forward, successive
// places are kStride columns apart. In the data gradient of a strided window, successive columns
// are kPlaceStep places apart.
template <int kTaps, int kStride, int kPlaceStep>
struct RowWindow {
  static constexpr int kWidth = kTaps;
  static constexpr int columns(int places) { return ((places - 1) * kStride + kTaps - 1) / kPlaceStep + 1; }
  static constexpr int tap(int place, int column) { return column * kPlaceStep - place * kStride; }
  static constexpr bool meet(int place, int column) { return tap(place, column) >= 0 && tap(place, column) < kTaps; }
  // Returns the first place of the first tile. The place is at or before place 0, and its tap 0
  // coincides with a column.
  static constexpr int64_t first_place(int64_t offset) { return -(offset & (kPlaceStep - 1)); }
  static constexpr int64_t first_column(int64_t place, int64_t offset) {
    return (place * kStride + offset) / kPlaceStep;
  }
};

// Floats of the narrowest vectors for which windows are compiled. The x86-64 baseline has neither
// fused products nor enough registers for windows. A build with one level has no windows, because
// its code must be small.
#if defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY)
constexpr int kWindowLanes = 4;
#else
constexpr int kWindowLanes = 8;
#endif

// Returns a mask: bit i is set if first + i is in [0, size).
constexpr uint32_t bits_inside(int64_t first, int count, int64_t size) {
  const int64_t begin = first < 0 ? -first : 0, end = size - first < count ? size - first : count;
  return begin < end ? (1u << end) - (1u << begin) : 0;
}

// A row of places, and the input rows that its taps read. Elements of `in` and `out` are addressed
// by index, because the first element may be outside the tensor.
template <typename Stored>
struct SharedRow {
  Stored* out;
  const Stored* in;
  const float* weights;
  const float* bias;    // [C], added to each output; null for none
  int64_t to, to_next;  // index of place 0, and distance to the next place
  // Index of column 0 of the input row that the first row of taps reads; distances to the next
  // column and to the next row.
  int64_t from, from_next, from_down;
  // Index of the weight of tap 0 in the first row of taps; distances to the next tap and to the
  // next row.
  int64_t tap, tap_next, tap_down;
  // Index of column 0 of the first input row that only the next row of places needs, and the
  // distance to the next such row.
  int64_t ahead, ahead_down;
  int64_t to_down;  // distance in `out` from this row of output positions to the next row
  uint32_t places, columns, tap_rows, ahead_rows;
  int64_t offset;  // tap 0 of place 0 is at column offset / kPlaceStep
  bool accumulate;
};

template <int kLanes>
struct LanesOf {
  typedef int32_t type __attribute__((vector_size(kLanes * sizeof(int32_t))));
};

// Computes sum = old + sum. The first `kept` lanes of `sum` become those of `old`, which already
// contains their sums.
template <int kLanes>
REPRISE_INLINE void add_lanes(typename VectorOf<kLanes>::type& sum, const typename VectorOf<kLanes>::type& old,
                              int32_t kept) {
  typename LanesOf<kLanes>::type lane = {};
  REPRISE_UNROLLED for (int e = 0; e < kLanes; ++e) lane[e] = e;
  sum = lane < kept ? old : old + sum;
}

// Prefetches input rows that the next row of places needs and this row does not, at the columns of
// this tile. The other input rows of the next row of places are already in a cache. The hardware
// does not prefetch the new elements: they are read in chunks too short to recognise a pattern.
template <typename Window, int kPlaces, typename Stored>
REPRISE_INLINE void fetch_columns(const SharedRow<Stored>& row, int64_t place, int64_t c) {
  constexpr int kFresh = static_cast<int>(Window::first_column(kPlaces, 0));  // columns that are new to this tile
  const Stored* ahead = row.in + (row.ahead + Window::first_column(place, 0) * row.from_next + c);
  for (uint32_t r = 0; r < row.ahead_rows; ++r, ahead += row.ahead_down) {
    REPRISE_UNROLLED for (int i = 0; i < kFresh; ++i) __builtin_prefetch(ahead + i * row.from_next, 0, 2);
  }
}

// Prefetches the outputs of the next row of places, because a cache line is read before a part of
// it is written. A processor has a limited number of outstanding reads, so this function is called
// after the tile is summed.
template <int kPlaces, typename Stored>
REPRISE_INLINE void fetch_places(const SharedRow<Stored>& row, int64_t place, int64_t c) {
  const Stored* below = row.out + (row.to + row.to_down + place * row.to_next + c);
  REPRISE_UNROLLED for (int i = 0; i < kPlaces; ++i) __builtin_prefetch(below + i * row.to_next, 1, 2);
}

// Computes channels [c, c + kLanes) of places [place, place + kPlaces). Omits places outside the
// row. The first `kept` channels are already computed by the previous tile: if row.accumulate, they
// stay unchanged; otherwise they get the same values again. Each sum adds its taps in order, so its
// bits do not depend on the tile.
template <typename Window, int kLanes, int kPlaces, typename Stored>
REPRISE_INLINE void gather_window_tile(const SharedRow<Stored>& row, int64_t place, uint32_t c, int32_t kept) {
  using Vector = typename VectorOf<kLanes>::type;
  constexpr int kColumns = Window::columns(kPlaces);
  const int64_t first = Window::first_column(place, row.offset);
  const uint32_t written = bits_inside(place, kPlaces, row.places), read = bits_inside(first, kColumns, row.columns);
  Vector sum[kPlaces];
  Vector start = {};
  if (row.bias != nullptr) read_vector<kLanes>(start, row.bias + c);
  REPRISE_UNROLLED for (int i = 0; i < kPlaces; ++i) sum[i] = start;
  fetch_columns<Window, kPlaces>(row, place, c);
  int64_t x_line = row.from + first * row.from_next + c, w = row.tap + c;
  for (uint32_t t = 0; t < row.tap_rows; ++t, x_line += row.from_down, w += row.tap_down) {
    Vector weight[Window::kWidth];
    REPRISE_UNROLLED for (int u = 0; u < Window::kWidth; ++u)
        read_vector<kLanes>(weight[u], row.weights + (w + u * row.tap_next));
    int64_t x = x_line;
    REPRISE_UNROLLED for (int column = 0; column < kColumns; ++column, x += row.from_next) {
      if ((read >> column & 1) == 0) continue;
      Vector value;
      read_vector<kLanes>(value, row.in + x);
      REPRISE_UNROLLED for (int i = 0; i < kPlaces; ++i) {
        if (Window::meet(i, column)) sum[i] += value * weight[Window::tap(i, column)];
      }
    }
  }
  fetch_places<kPlaces>(row, place, c);
  int64_t to = row.to + place * row.to_next + c;
  REPRISE_UNROLLED for (int i = 0; i < kPlaces; ++i, to += row.to_next) {
    if ((written >> i & 1) == 0) continue;
    if (row.accumulate) {
      Vector old;
      read_vector<kLanes>(old, row.out + to);
      add_lanes<kLanes>(sum[i], old, kept);
    }
    write_vector<kLanes>(row.out + to, sum[i]);
  }
}

// Operands of add_products(): x and dy, and the distances between their elements.
template <typename Stored>
struct Products {
  const Stored *x, *dy;
  int64_t x_next, x_down, dy_next;  // distances to the next column, row of taps, and output
};

// Number of rows of taps whose sums fit in registers, in addition to four outputs and a column.
template <int kLanes, int kTaps>
constexpr int kRowsOfSums = ((kLanes == 16 ? 32 : 16) - 5) / kTaps < kTaps ? ((kLanes == 16 ? 32 : 16) - 5) / kTaps
                                                                           : kTaps;

// Adds the products of kOutputs outputs from index `dy` on and columns from index `x` on. Uses
// column i if bit i of `read` is set, and tap row i if bit i of `rows` is set. A sum adds its
// outputs in order, whatever kOutputs is.
template <typename Window, int kLanes, int kRows, int kOutputs, typename Stored>
REPRISE_INLINE void add_products(typename VectorOf<kLanes>::type (&sum)[kRows][Window::kWidth],
                                 const Products<Stored>& p, int64_t dy, int64_t x, uint32_t read, uint32_t rows) {
  constexpr int kColumns = Window::columns(kOutputs);
  typename VectorOf<kLanes>::type gradient[kOutputs];
  REPRISE_UNROLLED for (int i = 0; i < kOutputs; ++i) read_vector<kLanes>(gradient[i], p.dy + (dy + i * p.dy_next));
  REPRISE_UNROLLED for (int r = 0; r < kRows; ++r, x += p.x_down) {
    if ((rows >> r & 1) == 0) continue;
    int64_t from = x;
    REPRISE_UNROLLED for (int column = 0; column < kColumns; ++column, from += p.x_next) {
      if ((read >> column & 1) == 0) continue;
      typename VectorOf<kLanes>::type value;
      read_vector<kLanes>(value, p.x + from);
      REPRISE_UNROLLED for (int i = 0; i < kOutputs; ++i) {
        if (Window::meet(i, column)) sum[r][Window::tap(i, column)] += value * gradient[i];
      }
    }
  }
}

}  // namespace reprise::depthwise
