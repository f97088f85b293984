// Windows of a few neighbouring taps along a row: a tile of neighbouring places loads each column once, for all the places that share it,
// and each row of taps loads its weights once. Here because a processor that loads a column anew for each tap is bound by its loads long
// before memory is.
//
// Taps, places and columns are known when this is compiled, so that all of a tile stays in registers. A column that does not exist is
// skipped, and with it the taps that would read it: edges are in tiles as all other places are.
#pragma once

#include "lib/cpu/conv_rules.h"
#include "lib/cpu/vector_of.h"

// A loop whose few steps the compiler must write out, so that what it indexes stays in registers.
#define REPRISE_UNROLLED _Pragma("GCC unroll 32")

namespace reprise::depthwise {

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

// Counted from the first place and column of a tile: column * kSpread = place * kStride + tap. One of the two is 1: places are `kStride`
// columns apart, or there are `kSpread` places for each column, as where a gradient goes back through a stride.
template <int kTaps, int kStride, int kSpread>
struct RowWindow {
  static constexpr int kWidth = kTaps;
  static constexpr int columns(int places) { return ((places - 1) * kStride + kTaps - 1) / kSpread + 1; }
  static constexpr int tap(int place, int column) { return column * kSpread - place * kStride; }
  static constexpr bool meet(int place, int column) { return tap(place, column) >= 0 && tap(place, column) < kTaps; }
  static constexpr int64_t first_place(int64_t offset) { return -(offset & (kSpread - 1)); }  // of the first tile: at a column
  static constexpr int64_t first_column(int64_t place, int64_t offset) { return (place * kStride + offset) / kSpread; }
};

// Floats of the narrowest vectors that have such tiles: x86-64 as it was has neither fused products nor the registers for them, and where
// only one level is built every byte of code counts.
#if defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY)
constexpr int kWindowLanes = 4;
#else
constexpr int kWindowLanes = 8;
#endif

// Bit i: first + i is one of `size`.
constexpr uint32_t bits_inside(int64_t first, int count, int64_t size) {
  const int64_t begin = first < 0 ? -first : 0, end = size - first < count ? size - first : count;
  return begin < end ? (1u << end) - (1u << begin) : 0;
}

// A row of places, and the rows of columns that their taps read: elements of `in` and of `out` by their index, because the first may lie
// outside.
template <typename Stored>
struct SharedRow {
  Stored* out;
  const Stored* in;
  const float* weights;
  const float* bias;                   // or null
  int64_t to, to_next;                 // where place 0 writes, and from one place to the next
  int64_t from, from_next, from_down;  // column 0 of the first row of taps, from one to the next, and from row to row
  int64_t tap, tap_next, tap_down;     // likewise of the weights, from tap 0
  int64_t ahead, ahead_down;  // column 0 of the first of the rows that the next row of places reads first, and from row to row
  int64_t to_down;            // from a row of places to the next
  uint32_t places, columns, tap_rows, ahead_rows;
  int64_t offset;  // place 0 and tap 0 are at this column, or so many places before a column
  bool accumulate;
};

template <int kLanes>
struct LanesOf {
  typedef int32_t type __attribute__((vector_size(kLanes * sizeof(int32_t))));
};

// old + sum, but old in the first `kept` lanes.
template <int kLanes>
REPRISE_INLINE void add_lanes(typename VectorOf<kLanes>::type& sum, const typename VectorOf<kLanes>::type& old, int32_t kept) {
  typename LanesOf<kLanes>::type lane = {};
  REPRISE_UNROLLED for (int e = 0; e < kLanes; ++e) lane[e] = e;
  sum = lane < kept ? old : old + sum;
}

// Fetches what lies where this tile is in the rows that the next row reads first. Taps look back at rows that are in a cache; only what is new
// comes from memory, in pieces too short for a processor to see an order in them.
template <typename Window, int kPlaces, typename Stored>
REPRISE_INLINE void fetch_columns(const SharedRow<Stored>& row, int64_t place, int64_t c) {
  constexpr int kFresh = static_cast<int>(Window::first_column(kPlaces, 0));  // columns that the tile before does not fetch
  const Stored* ahead = row.in + (row.ahead + Window::first_column(place, 0) * row.from_next + c);
  for (uint32_t r = 0; r < row.ahead_rows; ++r, ahead += row.ahead_down) {
    REPRISE_UNROLLED for (int i = 0; i < kFresh; ++i) __builtin_prefetch(ahead + i * row.from_next, 0, 2);
  }
}

// The same of what the next row writes, because a line is read before a part of it is written. A processor has so many reads under way and no
// more: so these wait until the tile is summed.
template <int kPlaces, typename Stored>
REPRISE_INLINE void fetch_places(const SharedRow<Stored>& row, int64_t place, int64_t c) {
  const Stored* below = row.out + (row.to + row.to_down + place * row.to_next + c);
  REPRISE_UNROLLED for (int i = 0; i < kPlaces; ++i) __builtin_prefetch(below + i * row.to_next, 1, 2);
}

// Channels [c, c + kLanes), of which the first `kept` have been before, of places [place, place + kPlaces), of which some may not exist.
// A sum takes its taps in their order, whatever the tile.
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

// Sums of a row's products over neighbouring outputs: what the gradient of the weights adds up for some channels.
template <typename Stored>
struct Products {
  const Stored *x, *dy;
  int64_t x_next, x_down, dy_next;  // from one column, one row of taps and one output to the next
};

// Rows of taps whose sums stay in registers, beside four outputs and a column.
template <int kLanes, int kTaps>
constexpr int kRowsOfSums = ((kLanes == 16 ? 32 : 16) - 5) / kTaps < kTaps ? ((kLanes == 16 ? 32 : 16) - 5) / kTaps : kTaps;

// Outputs [0, kOutputs) from dy, the columns `read` from x, the rows of taps `rows`. A sum takes its outputs in their order, whatever
// kOutputs is.
template <typename Window, int kLanes, int kRows, int kOutputs, typename Stored>
REPRISE_INLINE void add_products(typename VectorOf<kLanes>::type (&sum)[kRows][Window::kWidth], const Products<Stored>& p,
                                 int64_t dy, int64_t x, uint32_t read, uint32_t rows) {
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
