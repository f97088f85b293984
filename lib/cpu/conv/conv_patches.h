// The patches of a convolution as operands of a product. The packers gather them while a panel is
// packed, so no im2col matrix exists.
#pragma once

#include <cstring>

#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/conv/conv_source.h"
#include "lib/cpu/gemm/gemm.h"

namespace reprise {

// A grid of places [N, rows, columns], and the elements that they read from a source [N, H, W,
// pixel]. In the forward, places are positions of the output and the source is x. In the data
// gradient, places are positions of dx, the source is dy, and taps run backwards. A tap of a place
// is `channels` contiguous elements; `rows` and `columns` give its pixel. Taps outside the source
// are zero. In a convolution with groups the channels are those of one group, and `source` points
// to the first of them.
template <typename Stored>
struct Patches {
  const Stored* source;
  uint32_t H, W, pixel, channels;
  TapWalk rows, columns;

  uint64_t depth() const { return uint64_t{rows.taps} * columns.taps * channels; }
  // True if the pixels of successive taps along a row are contiguous in memory.
  bool taps_are_neighbours() const { return columns.step == 1 && pixel == channels; }
};

// The place number `index` of the grid; next() moves to the following place.
struct PatchPlace {
  uint32_t n, a, b;

  template <typename Stored>
  PatchPlace(const Patches<Stored>& p, uint64_t index)
      : n(static_cast<uint32_t>(index / (uint64_t{p.rows.places} * p.columns.places))),
        a(static_cast<uint32_t>(index / p.columns.places % p.rows.places)),
        b(static_cast<uint32_t>(index % p.columns.places)) {}
  template <typename Stored>
  void next(const Patches<Stored>& p) {
    if (++b < p.columns.places) return;
    b = 0;
    if (++a < p.rows.places) return;
    a = 0;
    ++n;
  }
};

constexpr bool is_inside(int32_t i, uint32_t size) { return static_cast<uint32_t>(i) < size; }

// Returns the address of the first channel of the pixel that tap (t, u) reads; null outside the
// source.
template <typename Stored>
const Stored* tap_pixel(const Patches<Stored>& p, const PatchPlace& place, uint32_t t, uint32_t u) {
  const int32_t row =
      static_cast<int32_t>(place.a) * p.rows.stride + p.rows.offset + static_cast<int32_t>(t) * p.rows.step;
  const int32_t column =
      static_cast<int32_t>(place.b) * p.columns.stride + p.columns.offset + static_cast<int32_t>(u) * p.columns.step;
  if (!is_inside(row, p.H) || !is_inside(column, p.W)) return nullptr;
  const uint64_t pixel = (uint64_t{place.n} * p.H + static_cast<uint32_t>(row)) * p.W + static_cast<uint32_t>(column);
  return p.source + pixel * p.pixel;
}

// Copies depths [k0, k0 + count) of a patch to `line`.
template <typename To, typename Stored>
void copy_patch(To* line, const Patches<Stored>& p, const PatchPlace& place, uint64_t k0, uint32_t count) {
  uint32_t c = static_cast<uint32_t>(k0 % p.channels);
  uint32_t tap = static_cast<uint32_t>(k0 / p.channels);
  while (count > 0) {
    const uint32_t run = static_cast<uint32_t>(smaller(count, p.channels - c));
    const Stored* pixel = tap_pixel(p, place, tap / p.columns.taps, tap % p.columns.taps);
    if (pixel == nullptr) {
      std::memset(line, 0, run * sizeof *line);
    } else {
      copy_run(line, pixel + c, run);
    }
    line += run;
    count -= run;
    c = 0;
    ++tap;
  }
}

constexpr uint32_t kFewChannels =
    16;  // with fewer, patches are first copied to lines: their runs are too short for a transpose

// An operand whose lines are places (Patches) and whose depths are (tap, channel).
struct PlaceLines {
  Patches<float> patches;

  void operator()(float* panel, const PanelRange& range) const {
    if (patches.channels < kFewChannels) {
      pack_copies(panel, range);
    } else {
      pack_runs(panel, range);
    }
  }

  // Finds the runs of the range's lines, and returns their number. A row of taps is one run if it
  // has at least kFewChannels elements, and if its pixels are contiguous and inside the source for
  // every line. Otherwise each tap is one run; returns 0 if a tap then has fewer than kFewChannels
  // elements. Also returns 0 if lines collide in the cache.
  uint32_t find_runs(RowRun* runs, const PanelRange& range) const {
    if (lines_collide(int64_t{patches.columns.stride} * patches.pixel)) return 0;
    const uint32_t row = patches.columns.taps * patches.channels;
    if (row >= kFewChannels && patches.taps_are_neighbours() && columns_are_inside(range))
      return find_runs_of(runs, range, patches.columns.taps, row);
    return patches.channels < kFewChannels ? 0 : find_runs_of(runs, range, 1, patches.channels);
  }

  bool columns_are_inside(const PanelRange& range) const {
    PatchPlace place(patches, range.first);
    for (uint32_t i = 0; i < range.count; ++i) {
      const int32_t first = static_cast<int32_t>(place.b) * patches.columns.stride + patches.columns.offset;
      if (first < 0 || first + static_cast<int32_t>(patches.columns.taps) > static_cast<int32_t>(patches.W))
        return false;
      place.next(patches);
    }
    return true;
  }

  // Finds runs of `taps` taps, `length` floats each.
  uint32_t find_runs_of(RowRun* runs, const PanelRange& range, uint32_t taps, uint32_t length) const {
    uint32_t c = static_cast<uint32_t>(range.k0 % length);
    uint32_t tap = static_cast<uint32_t>(range.k0 / length) * taps;
    uint32_t count = 0;
    for (uint32_t k = 0; k < range.kc; ++count) {
      RowRun& run = runs[count];
      run.depths = static_cast<uint32_t>(smaller(range.kc - k, length - c));
      // Prefetches for the last run only. The panels that computed the row above have already
      // prefetched the data of the other taps.
      const bool is_last = tap + taps == patches.rows.taps * patches.columns.taps;
      run.ahead = is_last ? int64_t{range.width} * patches.columns.stride * patches.pixel : 0;
      find_rows(run, range, tap, c);
      k += run.depths;
      c = 0;
      tap += taps;
    }
    return count;
  }

  void find_rows(RowRun& run, const PanelRange& range, uint32_t tap, uint32_t c) const {
    PatchPlace place(patches, range.first);
    for (uint32_t i = 0; i < range.width; ++i) {
      const float* pixel =
          i < range.count ? tap_pixel(patches, place, tap / patches.columns.taps, tap % patches.columns.taps) : nullptr;
      run.rows[i] = pixel == nullptr ? kZeroLine : pixel + c;
      place.next(patches);
    }
  }

  void pack_copies(float* panel, const PanelRange& range) const {
    REPRISE_STACK_BUFFER(float, copies, range.count * uint64_t{range.kc});
    const float* lines[kMaxMr];
    PatchPlace place(patches, range.first);
    for (uint32_t i = 0; i < range.width; ++i) {
      float* copy = copies + i * uint64_t{range.kc};
      lines[i] = i < range.count ? copy : kZeroLine;
      if (i >= range.count) continue;
      copy_patch(copy, patches, place, range.k0, range.kc);
      place.next(patches);
    }
    pack_lines(range.level, panel, range.width, lines, range.kc, range.floats_ahead);
  }

  // Packs tap by tap, directly from the source.
  void pack_runs(float* panel, const PanelRange& range) const {
    uint32_t c = static_cast<uint32_t>(range.k0 % patches.channels);
    uint32_t tap = static_cast<uint32_t>(range.k0 / patches.channels);
    const float* lines[kMaxMr];
    for (uint32_t k = 0; k < range.kc;) {
      const uint32_t run = static_cast<uint32_t>(smaller(range.kc - k, patches.channels - c));
      const uint32_t t = tap / patches.columns.taps, u = tap % patches.columns.taps;
      PatchPlace place(patches, range.first);
      for (uint32_t i = 0; i < range.width; ++i) {
        const float* pixel = i < range.count ? tap_pixel(patches, place, t, u) : nullptr;
        lines[i] = pixel == nullptr ? kZeroLine : pixel + c;
        place.next(patches);
      }
      pack_lines(range.level, panel + k * range.width, range.width, lines, run, range.floats_ahead);
      k += run;
      c = 0;
      ++tap;
    }
  }
};

// As PlaceLines, for a source stored as bf16. The lines are widened to f32, and a tile reads the
// widened lines in place.
struct WidenedPlaceLines {
  Patches<Bf16> patches;

  bool widen_lines(float* lines, const PanelRange& range) const {
    PatchPlace place(patches, range.first);
    for (uint32_t i = 0; i < range.count; ++i, lines += range.stride) {
      copy_patch(lines, patches, place, range.k0, range.kc);
      place.next(patches);
    }
    return true;
  }

  void operator()(float* panel, const PanelRange& range) const { pack_widened(panel, range, *this); }
};

// Prefetches `count` elements into L2; they may be outside the tensor.
template <typename Stored>
void fetch_run(const Stored* from, uint32_t count) {
  for (uint32_t i = 0; i < count; i += 64 / sizeof(Stored)) __builtin_prefetch(from + i, 0, 2);
}

// As PlaceLines, for a source that is normalised while it is read. Reads tap by tap, for all lines
// together, and prefetches the input of the next rows of C.
template <typename Stored>
struct NormalisedPlaceLines {
  Patches<Stored> patches;
  InputNorm norm;

  bool widen_lines(float* lines, const PanelRange& range) const {
    read_lines(lines, range.stride, range, range.k0, range.kc);
    return true;
  }

  // Reads elements [k0, k0 + count) of the range's lines, `stride` elements apart.
  template <typename To>
  void read_lines(To* lines, uint32_t stride, const PanelRange& range, uint64_t k0, uint32_t count) const {
    uint32_t c = static_cast<uint32_t>(k0 % patches.channels);
    uint32_t tap = static_cast<uint32_t>(k0 / patches.channels);
    const Stored* pixels[kMaxMr];
    const int64_t ahead = int64_t{range.width} * patches.columns.stride * patches.pixel;
    for (uint32_t k = 0; k < count; c = 0, ++tap) {
      const uint32_t run = static_cast<uint32_t>(smaller(count - k, patches.channels - c));
      PatchPlace place(patches, range.first);
      for (uint32_t i = 0; i < range.count; ++i) {
        const Stored* pixel = tap_pixel(patches, place, tap / patches.columns.taps, tap % patches.columns.taps);
        pixels[i] = pixel == nullptr ? nullptr : pixel + c;
        place.next(patches);
        if (pixel != nullptr) fetch_run(pixel + c + ahead, run);
      }
      read_pixels(range.level, lines + k, stride, pixels, range.count, norm, c, run);
      k += run;
    }
  }

  void operator()(float* panel, const PanelRange& range) const { pack_widened(panel, range, *this); }
};

inline PlaceLines place_lines(const Patches<float>& patches) { return {patches}; }
inline WidenedPlaceLines place_lines(const Patches<Bf16>& patches) { return {patches}; }

// An operand whose lines are (tap, channel) and whose depths are places (Patches). It is x in the
// product of a weight gradient.
template <typename Stored>
struct PlaceDepths {
  Patches<Stored> patches;
  InputNorm norm;

  void operator()(float* panel, const PanelRange& range) const { copy(panel, range); }

  // Packs a panel of f32 or bf16.
  template <typename To>
  void copy(To* panel, const PanelRange& range) const {
    // Taps of few channels are copied by rows of taps, whose pixels are contiguous.
    const bool by_rows = patches.channels < kFewChannels && norm.mean == nullptr && patches.taps_are_neighbours();
    const uint32_t length = by_rows ? patches.columns.taps * patches.channels : patches.channels;
    uint32_t c = static_cast<uint32_t>(range.first % length);
    uint32_t tap = static_cast<uint32_t>(range.first / length);
    for (uint32_t line = 0; line < range.count; ++tap, c = 0) {
      const uint32_t run = static_cast<uint32_t>(smaller(range.count - line, length - c));
      if (by_rows) {
        copy_row(panel + line, range, tap, c, run);
      } else {
        copy_tap(panel + line, range, tap, c, run);
      }
      line += run;
    }
    if (range.count == range.width) return;
    for (uint32_t k = 0; k < range.kc; ++k) {
      for (uint32_t i = range.count; i < range.width; ++i) panel[k * range.width + i] = 0.0f;
    }
  }

  // Copies channels [c, c + run) of one tap.
  template <typename To>
  void copy_tap(To* to, const PanelRange& range, uint32_t tap, uint32_t c, uint32_t run) const {
    REPRISE_STACK_BUFFER(const Stored*, pixels, range.kc);
    const int64_t ahead = int64_t{range.kc} * patches.rows.stride * patches.columns.stride * patches.pixel;
    for_each_depth(range, tap / patches.columns.taps, tap % patches.columns.taps,
                   [&](uint32_t k, const Stored* row, int32_t column) {
                     const bool there = row != nullptr && is_inside(column, patches.W);
                     pixels[k] = there ? row + static_cast<uint64_t>(column) * patches.pixel + c : nullptr;
                     if (there)
                       fetch_run(pixels[k] + ahead,
                                 run);  // an estimate of the next block's input: wrong if a row of places ends between
                   });
    read_pixels(range.level, to, range.width, pixels, range.kc, norm, c, run);
  }

  // Copies elements [c, c + run) of row t of the taps.
  template <typename To>
  void copy_row(To* to, const PanelRange& range, uint32_t t, uint32_t c, uint32_t run) const {
    const int64_t end = int64_t{patches.W} * patches.channels;
    for_each_depth(range, t, 0, [&](uint32_t k, const Stored* row, int32_t column) {
      To* line = to + uint64_t{k} * range.width;
      const int64_t first = int64_t{column} * patches.channels + c;
      if (row != nullptr && first >= 0 && first + run <= end) return copy_run(line, row + first, run);
      for (int64_t i = 0; i < run; ++i)
        line[i] = row != nullptr && first + i >= 0 && first + i < end ? float{row[first + i]} : 0.0f;
    });
  }

  // Calls use(k, row of the source, column) with the position of tap (t, u) at each depth k, one
  // row of places after another. `row` is null outside the source; the column may be outside, too.
  template <typename Use>
  void for_each_depth(const PanelRange& range, uint32_t t, uint32_t u, const Use& use) const {
    const PatchPlace place(patches, range.k0);
    uint32_t n = place.n, a = place.a, b = place.b;
    for (uint32_t k = 0; k < range.kc; b = 0) {
      const uint32_t end = static_cast<uint32_t>(smaller(range.kc, k + (patches.columns.places - b)));
      const int32_t row = static_cast<int32_t>(a) * patches.rows.stride + patches.rows.offset +
                          static_cast<int32_t>(t) * patches.rows.step;
      const uint64_t start = (uint64_t{n} * patches.H + static_cast<uint32_t>(row)) * patches.W * patches.pixel;
      const Stored* pixels = is_inside(row, patches.H) ? patches.source + start : nullptr;
      int32_t column = static_cast<int32_t>(b) * patches.columns.stride + patches.columns.offset +
                       static_cast<int32_t>(u) * patches.columns.step;
      for (; k < end; ++k, column += patches.columns.stride) use(k, pixels, column);
      if (++a == patches.rows.places) a = 0, ++n;
    }
  }
};

// The destination of one phase of dx, that is of one of the stride_h x stride_w interleaved parts
// of dx. Place (a, b) of the phase is pixel (stride_h * a + row0, stride_w * b + column0) of dx.
template <typename Stored>
struct PhaseOutput {
  static constexpr bool kUniformRows = false;
  Stored* dx;
  Patches<Stored> patches;  // the grid of the phase
  uint32_t H, W, C, stride_h, stride_w, row0, column0;
  const float* bias = nullptr;  // [C]

  Stored* row(uint64_t i) const { return pixel(PatchPlace(patches, i)); }
  // Finds the addresses of rows [i, i + count). Needs divisions only for the first address.
  void find_rows(Stored** rows, uint64_t i, uint32_t count) const {
    PatchPlace place(patches, i);
    for (uint32_t n = 0; n < count; ++n, place.next(patches)) rows[n] = pixel(place);
  }
  Stored* pixel(const PatchPlace& place) const {
    return dx + ((uint64_t{place.n} * H + place.a * stride_h + row0) * W + place.b * stride_w + column0) * C;
  }
};

// An operand whose lines are input channels and whose depths are (tap of the phase, output
// channel): w[k][r][s][c] with r = rows.tap + rows.tap_step * t.
struct PhaseWeights {
  const float* w;
  uint32_t R, S, C, K;
  Phase rows, columns;

  int64_t next_output() const { return static_cast<int64_t>(R) * S * C; }
  // Returns the address of the first input channel of an output's tap.
  const float* at(uint32_t tap, uint32_t k_out) const {
    const uint64_t r = rows.tap + rows.tap_step * (tap / columns.taps()),
                   s = columns.tap + columns.tap_step * (tap % columns.taps());
    return w + static_cast<int64_t>(k_out) * next_output() + (r * S + s) * C;
  }

  void operator()(float* panel, const PanelRange& range) const {
    uint32_t k_out = static_cast<uint32_t>(range.k0 % K);
    uint32_t tap = static_cast<uint32_t>(range.k0 / K);
    for (uint32_t k = 0; k < range.kc;) {
      const uint32_t run = static_cast<uint32_t>(smaller(range.kc - k, K - k_out));
      pack_depths(range.level, panel + k * range.width, range.width, range.count, at(tap, k_out) + range.first,
                  next_output(), run);
      k += run;
      k_out = 0;
      ++tap;
    }
  }
};

}  // namespace reprise
