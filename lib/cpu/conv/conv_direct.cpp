// Direct convolution for few channels: register tiles over a padded image on the worker's stack. It
// is for layers in which conv.cpp's implicit GEMM spends as long packing as multiplying.
#include "lib/cpu/conv/conv_direct.h"

#include <cstring>

#include "lib/cpu/conv/conv_source.h"
#include "lib/cpu/gemm/gemm.h"
#include "lib/cpu/norm/output_statistics.h"
#include "lib/cpu/vector_of.h"

namespace reprise {
namespace {

#define REPRISE_UNROLLED _Pragma("GCC unroll 32")

constexpr uint32_t kWideGroup = 32;

// Returns the output channels of one register tile: 32 (two AVX-512 vectors) if level and shape
// allow it, otherwise 16.
uint32_t output_group(VectorLevel level, const DirectShape& s) {
  const bool wide =
      level >= VectorLevel::kAvx512 && s.K % kWideGroup == 0 && s.channel_block() == kChannelBlock;
  return wide ? kWideGroup : kChannelBlock;
}

// Strides, in floats, of the buffer for channel blocks of kStep channels. The taps along a row are
// runs of contiguous floats, in which weights and pixels have the same order. At stride 1 all taps
// are a single run, because the next tap is the next pixel.
template <uint32_t kStep>
struct BufferSteps {
  uint64_t row, block, plane;
  uint32_t blocks, runs, run;

  REPRISE_INLINE explicit BufferSteps(const DirectShape& s)
      : row(s.row_floats()),
        block(uint64_t{s.plane_columns()} * s.stride * kStep),
        plane(uint64_t{s.plane_columns()} * kStep),
        blocks(s.C / kStep),
        runs(s.stride == 1 ? 1 : s.S),
        run(s.stride == 1 ? s.S * kStep : kStep) {}
  // Returns the index, in a channel block of a row, at which run `i` of the first pixel begins.
  REPRISE_INLINE uint64_t run_start(uint32_t i, uint32_t stride) const {
    return i % stride * plane + i / stride * kStep;
  }
};

void copy_floats(float* to, const float* from, uint64_t count) { std::memcpy(to, from, count * sizeof(float)); }
void copy_floats(float* to, const Bf16* from, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) to[i] = from[i];
}

// Fills one channel block of one padded row. The row begins at column -pad_w of the source; its
// columns are grouped by column mod stride.
template <uint32_t kStep, typename Stored>
void fill_row(float* row, const DirectShape& s, const Stored* pixels) {
  const uint32_t plane = s.plane_columns();
  if (s.stride == 1 && s.C == kStep) {  // the buffer's row is the image's row with padding
    const uint64_t left = uint64_t{s.pad_w} * kStep, there = smaller(plane - s.pad_w, s.W) * kStep,
                   all = uint64_t{plane} * kStep;
    std::memset(row, 0, left * sizeof(float));
    copy_floats(row + left, pixels, there);
    std::memset(row + left + there, 0, (all - left - there) * sizeof(float));
    return;
  }
  for (uint32_t residue = 0; residue < s.stride; ++residue) {
    for (uint32_t i = 0; i < plane; ++i, row += kStep) {
      const uint32_t column = i * s.stride + residue - s.pad_w;  // wraps to a large number left of the image
      if (column < s.W) {
        copy_run(row, pixels + uint64_t{column} * s.C, kStep);
      } else {
        std::memset(row, 0, kStep * sizeof(float));
      }
    }
  }
}

// Fills channels [c, c + kStep) of one padded row, and normalises them.
template <uint32_t kStep, typename Stored>
void fill_normalised_row(VectorLevel level, float* row, const DirectShape& s, const Stored* pixels,
                         const InputNorm& norm, uint32_t c) {
  constexpr uint32_t kTogether = 64;
  const Stored* together[kTogether];
  const uint32_t plane = s.plane_columns();
  for (uint32_t residue = 0; residue < s.stride; ++residue) {
    for (uint32_t first = 0; first < plane; first += kTogether) {
      const uint32_t count = static_cast<uint32_t>(smaller(kTogether, plane - first));
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t column = (first + i) * s.stride + residue - s.pad_w;
        together[i] = column < s.W ? pixels + uint64_t{column} * s.C : nullptr;
      }
      read_pixels(level, row, kStep, together, count, norm, c, kStep);
      row += uint64_t{count} * kStep;
    }
  }
}

// Fills padded rows [first, first + rows) of image n.
template <uint32_t kStep, typename Stored>
void fill_rows(VectorLevel level, float* buffer, const DirectShape& s, const ConvSource<Stored>& source, uint32_t n,
               uint32_t first, uint32_t rows) {
  const uint64_t block_floats = s.row_floats() / (s.C / kStep);
  for (uint32_t i = 0; i < rows; ++i) {
    float* row = buffer + i * s.row_floats();
    const uint32_t h = first + i - s.pad_h;  // wraps to a large number above the image
    if (h >= s.H) {
      std::memset(row, 0, s.row_floats() * sizeof(float));
      continue;
    }
    const Stored* pixels = source.data + (uint64_t{n} * s.H + h) * s.W * s.C;
    for (uint32_t c = 0; c < s.C; c += kStep, row += block_floats) {
      if (source.normalises()) {
        fill_normalised_row<kStep>(level, row, s, pixels + c, source.norm, c);
      } else {
        fill_row<kStep>(row, s, pixels + c);
      }
    }
  }
}

// Fills the buffer with the input rows that output rows [first, first + rows) of image n read.
template <typename Stored>
void fill_buffer(VectorLevel level, float* buffer, const DirectShape& s, const ConvSource<Stored>& source, uint32_t n,
                 uint32_t first, uint32_t rows) {
  const uint32_t top = first * s.stride, height = (rows - 1) * s.stride + s.R;
  switch (s.channel_block()) {
    case 1: return fill_rows<1>(level, buffer, s, source, n, top, height);
    case 3: return fill_rows<3>(level, buffer, s, source, n, top, height);
    default: return fill_rows<kChannelBlock>(level, buffer, s, source, n, top, height);
  }
}

// Splits the output rows into blocks whose input rows fit in `floats` floats. A block has at least
// one row.
Partition row_blocks(const DirectShape& s, uint64_t floats) {
  const uint64_t maximum = (larger(s.R, floats / s.row_floats()) - s.R) / s.stride + 1;
  return split_at_most(s.P, divide_up(s.P, maximum), 1);
}

// Prefetches to L2 the source rows that a worker will probably copy next, a few cache lines at a
// time while the worker computes.
template <typename Stored>
struct SourceAhead {
  static constexpr uint32_t kLineElements = 64 / sizeof(Stored);
  const Stored *next, *end;
  uint64_t step;  // elements that one fetch() prefetches

  // Prepares to prefetch the source rows of row block `unit` in `fetches` parts. If there is no
  // such block, fetch() does nothing.
  SourceAhead(const DirectShape& s, const Partition& blocks, const ConvSource<Stored>& source, uint32_t unit,
              uint32_t fetches) {
    const uint64_t row = uint64_t{s.W} * s.C, n = unit / blocks.count(), p = blocks.begin(unit % blocks.count());
    const uint64_t rows = smaller(s.H, blocks.size * s.stride), h = smaller(s.H - rows, p * s.stride);
    const bool there = n < s.N;
    next = source.data + (there ? (n * s.H + h) * row : 0);
    end = next + (there ? rows * row : 0);
    step = divide_up(divide_up(rows * row, kLineElements), fetches) * kLineElements;
  }
  REPRISE_INLINE void fetch() {
    const Stored* stop = static_cast<uint64_t>(end - next) < step ? end : next + step;
    for (; next < stop; next += kLineElements) __builtin_prefetch(next, 0, 2);
  }
};

// ---- the correlation ----

// The arguments of a task, which computes one group of output channels for a block of rows.
template <typename Stored>
struct RowsTask {
  const DirectShape* shape;
  const float* buffer;
  const float* packed;  // packed weights of the group of output channels
  Stored* out;          // row 0, column 0, first channel of the group
  uint64_t out_row, out_pixel;
  uint32_t rows;
  uint32_t group;
  bool accumulate;
  const float* bias;  // bias of the group; null for none
  SourceAhead<Stored>* ahead;
};

template <int kLanes, uint32_t kVectors, uint32_t kRows, uint32_t kColumns>
struct CorrelationSums {
  typename VectorOf<kLanes>::type sum[kRows][kColumns][kVectors];
};

// Adds the products of a run: `run` floats of the buffer and their weights. Returns the address
// after these weights.
template <int kLanes, uint32_t kVectors, uint32_t kRows, uint32_t kColumns, uint32_t kStep>
REPRISE_INLINE const float* add_run(CorrelationSums<kLanes, kVectors, kRows, kColumns>& tile, const float* x,
                                    uint64_t row_step, const float* w, uint32_t run) {
  using V = typename VectorOf<kLanes>::type;
  for (uint32_t c = 0; c < run; ++c, ++x, w += kVectors * kLanes) {
    V weight[kVectors];
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) read_vector<kLanes>(weight[v], w + v * kLanes);
    REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
      REPRISE_UNROLLED for (uint32_t j = 0; j < kColumns; ++j) {
        const float value = x[i * row_step + j * kStep];
        REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) tile.sum[i][j][v] += weight[v] * value;
      }
    }
  }
  return w;
}

// Computes kRows rows of kColumns outputs, kVectors vectors of channels each, at row p and column q
// of the task.
template <int kLanes, uint32_t kStep, uint32_t kVectors, uint32_t kRows, uint32_t kColumns, typename Stored>
REPRISE_INLINE void correlate_tile(const RowsTask<Stored>& t, uint32_t p, uint32_t q) {
  using V = typename VectorOf<kLanes>::type;
  const DirectShape& s = *t.shape;
  const BufferSteps<kStep> steps(s);
  CorrelationSums<kLanes, kVectors, kRows, kColumns> tile;
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    REPRISE_UNROLLED for (uint32_t j = 0; j < kColumns; ++j) {
      REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) tile.sum[i][j][v] = V{};
    }
  }
  // Local copies: a compiler must assume that the stores may change the task.
  const uint64_t out_row = t.out_row, out_pixel = t.out_pixel;
  Stored* const out = t.out + p * out_row + q * out_pixel;
  if (t.accumulate) {  // prefetches the old values, which are read when the sums are complete
    for (uint32_t i = 0; i < kRows; ++i) {
      for (uint32_t j = 0; j < kColumns; ++j) {
        for (uint32_t v = 0; v < kVectors * kLanes; v += 64 / sizeof(Stored))
          __builtin_prefetch(out + i * out_row + j * out_pixel + v, 1, 3);
      }
    }
  }
  const float* w = t.packed;
  for (uint32_t r = 0; r < s.R; ++r) {
    for (uint32_t block = 0; block < steps.blocks; ++block) {
      const float* x = t.buffer + (p * s.stride + r) * steps.row + block * steps.block + q * kStep;
      for (uint32_t i = 0; i < steps.runs; ++i) {
        w = add_run<kLanes, kVectors, kRows, kColumns, kStep>(tile, x + steps.run_start(i, s.stride),
                                                              s.stride * steps.row, w, steps.run);
      }
    }
  }
  if (t.bias != nullptr) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
      V bias;
      read_vector<kLanes>(bias, t.bias + v * kLanes);
      REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
        REPRISE_UNROLLED for (uint32_t j = 0; j < kColumns; ++j) tile.sum[i][j][v] = tile.sum[i][j][v] + bias;
      }
    }
  }
  if (t.accumulate) {
    REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
      REPRISE_UNROLLED for (uint32_t j = 0; j < kColumns; ++j) {
        REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
          V old;
          read_vector<kLanes>(old, out + i * out_row + j * out_pixel + v * kLanes);
          tile.sum[i][j][v] = old + tile.sum[i][j][v];
        }
      }
    }
  }
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    REPRISE_UNROLLED for (uint32_t j = 0; j < kColumns; ++j) {
      REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
        write_vector<kLanes>(out + i * out_row + j * out_pixel + v * kLanes, tile.sum[i][j][v]);
      }
    }
  }
}

// The best width of the next tile for each number of columns that remain, so that all tiles
// together take the least time. A step of a tile is modelled as half a cycle for each vector of
// sums, but at least the four cycles of a multiply-add, plus half a cycle to load the weights.
template <uint32_t kSumsOfColumn, uint32_t... kWidths>
struct ColumnTiles {
  static constexpr uint32_t kMax = 64;  // if more columns remain, the width is the one for kMax
  uint8_t width[kMax + 1] = {};

  constexpr ColumnTiles() {
    uint32_t half_cycles[kMax + 1] = {};
    for (uint32_t left = 1; left <= kMax; ++left) {
      half_cycles[left] = ~0u;
      for (const uint32_t each : {kWidths...}) {
        if (each > left) continue;
        const uint32_t total = half_cycles[left - each] + (each * kSumsOfColumn > 8 ? each * kSumsOfColumn : 8) + 1;
        if (total < half_cycles[left]) half_cycles[left] = total, width[left] = static_cast<uint8_t>(each);
      }
    }
  }
};

// Computes all columns of rows [p, p + kRows) by tiles of the given widths. The widths are in
// descending order, and the last width must be 1.
template <int kLanes, uint32_t kStep, uint32_t kVectors, uint32_t kRows, uint32_t... kWidths, typename Stored>
REPRISE_INLINE void correlate_columns(const RowsTask<Stored>& t, uint32_t p) {
  static constexpr ColumnTiles<kVectors * kRows, kWidths...> kTiles;
  for (uint32_t q = 0, Q = t.shape->Q; q < Q;) {
    const uint32_t width = kTiles.width[smaller(Q - q, kTiles.kMax)];
    (void)((width == kWidths && (correlate_tile<kLanes, kStep, kVectors, kRows, kWidths>(t, p, q), true)) || ...);
    q += width;
  }
}

#if defined(__aarch64__)
constexpr uint32_t kNarrowColumns = 4;  // columns of a tile, for vectors of 4 lanes
#else
constexpr uint32_t kNarrowColumns = 2;
#endif

// Computes a group of 16 output channels. The tiles fill the registers: AVX-512 and NEON have 32,
// other levels 16.
template <int kLanes, uint32_t kStep, typename Stored>
REPRISE_INLINE void correlate_narrow_rows(const RowsTask<Stored>& t) {
  for (uint32_t p = 0; p < t.rows; ++p) {
    t.ahead->fetch();
    if constexpr (kLanes == 16) {
      correlate_columns<kLanes, kStep, 1, 1, 28, 16, 8, 4, 2, 1>(t, p);
    } else if constexpr (kLanes == 8) {
      correlate_columns<kLanes, kStep, 2, 1, 6, 4, 2, 1>(t, p);
    } else {
      correlate_columns<kLanes, kStep, 4, 1, kNarrowColumns, 2, 1>(t, p);
    }
  }
}

// Computes a group of 32 output channels. Requires AVX-512.
template <int kLanes, typename Stored>
REPRISE_INLINE void correlate_wide_rows(const RowsTask<Stored>& t) {
  uint32_t p = 0;
  if (t.shape->Q < 14) {  // short rows are computed in pairs
    for (; p + 2 <= t.rows; p += 2) {
      t.ahead->fetch();
      t.ahead->fetch();
      correlate_columns<kLanes, kChannelBlock, 2, 2, 7, 4, 2, 1>(t, p);
    }
  }
  for (; p < t.rows; ++p) {
    t.ahead->fetch();
    correlate_columns<kLanes, kChannelBlock, 2, 1, 14, 8, 7, 4, 2, 1>(t, p);
  }
}

template <int kLanes, typename Stored>
REPRISE_INLINE void correlate_rows_body(const RowsTask<Stored>& t) {
  if constexpr (kLanes == 16) {
    if (t.group == kWideGroup) return correlate_wide_rows<kLanes>(t);
  }
  switch (t.shape->channel_block()) {
    case 1: return correlate_narrow_rows<kLanes, 1>(t);
    case 3: return correlate_narrow_rows<kLanes, 3>(t);
    default: return correlate_narrow_rows<kLanes, kChannelBlock>(t);
  }
}
REPRISE_STORAGE_LEVELS(correlate_rows, correlate_rows_body<kLanes>, (const RowsTask<Stored>& t), (t))

// Packs the weights as packed[group][r][channel block][s][channel][output of the group].
void pack_weights(const KernelContext& context, const DirectShape& s, const DirectWeights& weights, uint32_t group,
                  float* packed) {
  const uint32_t step = s.channel_block(), blocks = s.C / step;
  const uint64_t panel_floats = uint64_t{step} * group;
  parallel_for(*context.workers, s.K / group * s.R, [&](uint32_t task) {
    const int64_t k0 = task / s.R * group, r = task % s.R;
    float* panel = packed + uint64_t{task} * blocks * s.S * panel_floats;
    for (uint32_t c = 0; c < s.C; c += step) {
      for (uint32_t tap = 0; tap < s.S; ++tap, panel += panel_floats) {
        const float* first =
            weights.w + k0 * weights.output + r * weights.row + tap * weights.column + c * weights.channel;
        if (weights.output == 1) {
          pack_depths(cpu_machine(context).level, panel, group, group, first, weights.channel, step);
        } else {
          const float* lines[kWideGroup];
          for (uint32_t k = 0; k < group; ++k) lines[k] = first + k * weights.output;
          pack_lines(cpu_machine(context).level, panel, group, lines, step, cpu_machine(context).blocking.floats_ahead);
        }
      }
    }
  });
}

// ---- the weight gradient ----

// The arguments of a task, which adds the gradient of all weights over a block of rows of one image
// to `partial`. The order of `partial` is that of packed weights.
template <typename Stored>
struct GradientTask {
  const DirectShape* shape;
  const float* buffer;
  const Stored* dy;  // gradients of the outputs, from row 0 of the block on
  float* partial;
  uint32_t rows;
  uint32_t group;
  SourceAhead<Stored>* ahead;
};

// Adds the products of kChannels floats of a run and kVectors vectors of dy, over all pixels of the
// block. `x` points to the floats at the first pixel, `sums` to their sums.
template <int kLanes, uint32_t kStep, uint32_t kVectors, uint32_t kChannels, typename Stored>
REPRISE_INLINE void gradient_tile(const GradientTask<Stored>& t, const float* x, const Stored* dy, float* sums) {
  using V = typename VectorOf<kLanes>::type;
  const DirectShape& s = *t.shape;
  const uint64_t row_step = s.stride * s.row_floats();
  V sum[kChannels][kVectors];
  REPRISE_UNROLLED for (uint32_t c = 0; c < kChannels; ++c) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v)
        read_vector<kLanes>(sum[c][v], sums + (c * kVectors + v) * kLanes);
  }
  for (uint32_t p = 0; p < t.rows; ++p, x += row_step) {
    t.ahead->fetch();
    const float* pixel = x;
    for (uint32_t q = 0; q < s.Q; ++q, pixel += kStep, dy += s.K) {
      V gradient[kVectors];
      REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) read_vector<kLanes>(gradient[v], dy + v * kLanes);
      REPRISE_UNROLLED for (uint32_t c = 0; c < kChannels; ++c) {
        const float value = pixel[c];
        REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sum[c][v] += gradient[v] * value;
      }
    }
  }
  REPRISE_UNROLLED for (uint32_t c = 0; c < kChannels; ++c) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v)
        write_vector<kLanes>(sums + (c * kVectors + v) * kLanes, sum[c][v]);
  }
}

template <int kLanes, uint32_t kStep, uint32_t kVectors, uint32_t kChannels, typename Stored>
REPRISE_INLINE float* gradient_run(const GradientTask<Stored>& t, const float* x, const Stored* dy, float* sums,
                                   uint32_t run) {
  uint32_t c = 0;
  for (; c + kChannels <= run; c += kChannels, sums += kChannels * kVectors * kLanes) {
    gradient_tile<kLanes, kStep, kVectors, kChannels>(t, x + c, dy, sums);
  }
  for (; c < run; ++c, sums += kVectors * kLanes) gradient_tile<kLanes, kStep, kVectors, 1>(t, x + c, dy, sums);
  return sums;
}

template <int kLanes, uint32_t kStep, uint32_t kVectors, uint32_t kChannels, typename Stored>
REPRISE_INLINE void gradient_taps(const GradientTask<Stored>& t) {
  const DirectShape& s = *t.shape;
  const BufferSteps<kStep> steps(s);
  float* sums = t.partial;
  for (uint32_t k0 = 0; k0 < s.K; k0 += kVectors * kLanes) {
    for (uint32_t r = 0; r < s.R; ++r) {
      for (uint32_t block = 0; block < steps.blocks; ++block) {
        const float* x = t.buffer + r * steps.row + block * steps.block;
        for (uint32_t i = 0; i < steps.runs; ++i) {
          sums = gradient_run<kLanes, kStep, kVectors, kChannels>(t, x + steps.run_start(i, s.stride), t.dy + k0, sums,
                                                                  steps.run);
        }
      }
    }
  }
}

template <int kLanes, typename Stored>
REPRISE_INLINE void gradient_rows_body(const GradientTask<Stored>& t) {
  constexpr uint32_t kVectors = kChannelBlock / kLanes;  // vectors of a group of 16 output channels
  constexpr uint32_t kChannels = kLanes == 16 ? 16 : kLanes == 8 ? 4 : kNarrowColumns;
  if constexpr (kLanes == 16) {
    if (t.group == kWideGroup) return gradient_taps<kLanes, kChannelBlock, 2, 8>(t);
  }
  switch (t.shape->channel_block()) {
    case 1: return gradient_taps<kLanes, 1, kVectors, 3>(t);
    case 3: return gradient_taps<kLanes, 3, kVectors, 3>(t);
    default: return gradient_taps<kLanes, kChannelBlock, kVectors, kChannels>(t);
  }
}
REPRISE_STORAGE_LEVELS(gradient_rows, gradient_rows_body<kLanes>, (const GradientTask<Stored>& t), (t))

#undef REPRISE_UNROLLED

// Computes dw (+)= the sum of the parts, in order, and reorders it from packed order to [K,R,S,C].
void unpack_gradient(const Workers& workers, const DirectShape& s, uint32_t group, const float* partials,
                     uint64_t stride, uint32_t parts, float* dw, bool accumulate) {
  const uint32_t step = s.channel_block(), blocks = s.C / step;
  const uint64_t panel_floats = uint64_t{step} * group;
  parallel_for(workers, s.K / group * s.R, [&](uint32_t task) {
    const uint32_t k0 = task / s.R * group, r = task % s.R;
    const float* panel = partials + uint64_t{task} * blocks * s.S * panel_floats;
    for (uint32_t c0 = 0; c0 < s.C; c0 += step) {
      for (uint32_t tap = 0; tap < s.S; ++tap, panel += panel_floats) {
        float sums[kChannelBlock * kWideGroup];
        std::memcpy(sums, panel, panel_floats * sizeof(float));
        for (uint32_t part = 1; part < parts; ++part) {
          for (uint64_t i = 0; i < panel_floats; ++i) sums[i] += panel[part * stride + i];
        }
        for (uint32_t k = 0; k < group; ++k) {
          float* place = dw + ((uint64_t{k0 + k} * s.R + r) * s.S + tap) * s.C + c0;
          for (uint32_t c = 0; c < step; ++c) place[c] = (accumulate ? place[c] : 0.0f) + sums[c * group + k];
        }
      }
    }
  });
}

// A row block whose input rows are in the worker's buffer. Row blocks are counted over all images.
struct FilledRows {
  uint32_t n, first, rows;

  template <typename Stored>
  FilledRows(VectorLevel level, float* buffer, const DirectShape& s, const Partition& blocks,
             const ConvSource<Stored>& source, uint32_t unit)
      : n(unit / blocks.count()),
        first(static_cast<uint32_t>(blocks.begin(unit % blocks.count()))),
        rows(static_cast<uint32_t>(blocks.end(unit % blocks.count())) - first) {
    fill_buffer(level, buffer, s, source, n, first, rows);
  }
};

}  // namespace

template <typename Stored>
void direct_correlate(const KernelContext& context, const DirectShape& shape, const DirectOutputOf<Stored>& output,
                      const ConvSource<Stored>& source, const DirectWeights& weights, void* scratch) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t group = output_group(level, shape);
  float* packed = static_cast<float*>(scratch);
  pack_weights(context, shape, weights, group, packed);
  const uint64_t group_floats = shape.weights() / (shape.K / group);
  const Partition blocks = row_blocks(shape, cpu_machine(context).blocking.direct_floats);
  parallel_for(*context.workers, shape.N * blocks.count(), [&](uint32_t unit) {
    alignas(64) float buffer[kDirectBufferFloats];
    const FilledRows filled(level, buffer, shape, blocks, source, unit);
    SourceAhead<Stored> ahead(shape, blocks, source, unit + context.workers->count, filled.rows);
    Stored* out = output.data + filled.n * output.image + filled.first * output.row;
    for (uint32_t k0 = 0; k0 < shape.K; k0 += group) {
      correlate_rows(level, RowsTask<Stored>{&shape, buffer, packed + k0 / group * group_floats, out + k0, output.row,
                                             output.pixel, filled.rows, group, output.accumulate,
                                             output.bias == nullptr ? nullptr : output.bias + k0, &ahead});
    }
    const uint64_t row = uint64_t{filled.n} * shape.P + filled.first;
    if (output.statistics != nullptr) output.statistics->written(row * shape.Q, (row + filled.rows) * shape.Q, shape.K);
  });
}

template <typename Stored>
void direct_weight_gradient(const KernelContext& context, const DirectShape& shape, float* dw,
                            const ConvSource<Stored>& source, const Stored* dy, bool accumulate, void* scratch) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t group = output_group(level, shape);
  const Partition blocks = row_blocks(shape, kDirectBufferFloats);  // a constant size, because blocks decide the bits
  const uint32_t units = shape.N * blocks.count(), parts = static_cast<uint32_t>(smaller(kDirectParts, units));
  const uint64_t stride = direct_weights_bytes(shape.weights()) / 4;
  float* partials = static_cast<float*>(scratch);
  parallel_for(*context.workers, parts, [&](uint32_t part) {
    alignas(64) float buffer[kDirectBufferFloats];
    float* partial = partials + part * stride;
    std::memset(partial, 0, shape.weights() * sizeof(float));
    const uint32_t end = static_cast<uint32_t>(uint64_t{units} * (part + 1) / parts);
    for (uint32_t unit = static_cast<uint32_t>(uint64_t{units} * part / parts); unit < end; ++unit) {
      const FilledRows filled(level, buffer, shape, blocks, source, unit);
      SourceAhead<Stored> ahead(shape, blocks, source, unit + 1, filled.rows * shape.R * shape.S);
      const Stored* gradient = dy + (uint64_t{filled.n} * shape.P + filled.first) * shape.Q * shape.K;
      gradient_rows(level, GradientTask<Stored>{&shape, buffer, gradient, partial, filled.rows, group, &ahead});
    }
  });
  unpack_gradient(*context.workers, shape, group, partials, stride, parts, dw, accumulate);
}

template void direct_correlate(const KernelContext&, const DirectShape&, const DirectOutputOf<float>&,
                               const ConvSource<float>&, const DirectWeights&, void*);
template void direct_correlate(const KernelContext&, const DirectShape&, const DirectOutputOf<Bf16>&,
                               const ConvSource<Bf16>&, const DirectWeights&, void*);
template void direct_weight_gradient(const KernelContext&, const DirectShape&, float*, const ConvSource<float>&,
                                     const float*, bool, void*);
template void direct_weight_gradient(const KernelContext&, const DirectShape&, float*, const ConvSource<Bf16>&,
                                     const Bf16*, bool, void*);

}  // namespace reprise
