// Winograd's convolution: transforms by channel, and between them matrix products with gemm.h's
// tiles. It multiplies 16 times where conv.cpp's implicit GEMM multiplies 36 times.
#include "lib/cpu/conv/conv_winograd.h"

#include <cstring>

#include "lib/cpu/conv/conv_source.h"
#include "lib/cpu/gemm/gemm.h"
#include "lib/cpu/norm/output_statistics.h"
#include "lib/cpu/vector_of.h"

namespace reprise {
namespace {

using gemm_detail::Block;
using gemm_detail::TileGeometry;

#define REPRISE_UNROLLED _Pragma("GCC unroll 4")

// ---- the transforms along one dimension ----

struct Input {  // B' of conv_winograd.h
  static constexpr int kIn = 4, kOut = 4;
  template <class V>
  REPRISE_INLINE static void apply(V (&out)[4], const V (&d)[4]) {
    out[0] = d[0] - d[2];
    out[1] = d[1] + d[2];
    out[2] = d[2] - d[1];
    out[3] = d[1] - d[3];
  }
};
struct Filter {  // G of conv_winograd.h
  static constexpr int kIn = 3, kOut = 4;
  template <class V>
  REPRISE_INLINE static void apply(V (&out)[4], const V (&g)[3]) {
    const V ends = g[0] + g[2];
    out[0] = g[0];
    out[1] = (ends + g[1]) * 0.5f;
    out[2] = (ends - g[1]) * 0.5f;
    out[3] = g[2];
  }
};
struct Output {  // A' of conv_winograd.h
  static constexpr int kIn = 4, kOut = 2;
  template <class V>
  REPRISE_INLINE static void apply(V (&out)[2], const V (&m)[4]) {
    out[0] = m[0] + m[1] + m[2];
    out[1] = m[1] - m[2] - m[3];
  }
};
struct OutputGradient {  // F of conv_winograd.h
  static constexpr int kIn = 2, kOut = 4;
  template <class V>
  REPRISE_INLINE static void apply(V (&out)[4], const V (&g)[2]) {
    out[0] = g[0];
    out[1] = (g[0] + g[1]) * 0.5f;
    out[2] = (g[0] - g[1]) * 0.5f;
    out[3] = g[1];
  }
};
struct FilterGradient {  // E' of conv_winograd.h
  static constexpr int kIn = 4, kOut = 3;
  template <class V>
  REPRISE_INLINE static void apply(V (&out)[3], const V (&m)[4]) {
    out[0] = m[0] + m[1] + m[2];
    out[1] = m[1] - m[2];
    out[2] = m[1] + m[2] - m[3];
  }
};

// Transforms the columns of a tile, then its rows.
template <class Transform, class V>
REPRISE_INLINE void transform_tile(V (&out)[Transform::kOut][Transform::kOut],
                                   const V (&in)[Transform::kIn][Transform::kIn]) {
  V half[Transform::kOut][Transform::kIn];
  REPRISE_UNROLLED for (int s = 0; s < Transform::kIn; ++s) {
    V column[Transform::kIn], points[Transform::kOut];
    REPRISE_UNROLLED for (int r = 0; r < Transform::kIn; ++r) column[r] = in[r][s];
    Transform::apply(points, column);
    REPRISE_UNROLLED for (int r = 0; r < Transform::kOut; ++r) half[r][s] = points[r];
  }
  REPRISE_UNROLLED for (int r = 0; r < Transform::kOut; ++r) Transform::apply(out[r], half[r]);
}

// ---- the transforms over channels ----

// The zeros that are read instead of the channels of a pixel outside the image.
template <typename Stored>
alignas(64) constexpr Stored kZeros[kKc] = {};

// Reads channels [c, c + kLanes) of the pixels of a tile. NormalisedStrip also applies batch-norm
// and relu.
template <int kLanes, typename Stored>
struct PlainStrip {
  const Stored* const* in;
  uint32_t c;

  REPRISE_INLINE void read(typename VectorOf<kLanes>::type& value, int i) const {
    read_vector<kLanes>(value, in[i] + c);
  }
};
template <int kLanes, typename Stored>
struct NormalisedStrip {
  const Stored* const* in;
  uint32_t c;
  ChannelNorm<kLanes> norm;

  REPRISE_INLINE void read(typename VectorOf<kLanes>::type& value, int i) const {
    read_vector<kLanes>(value, in[i] + c);
    norm.apply(value);
    cut_negative<kLanes>(value);
    if (in[i] == kZeros<Stored>) value = typename VectorOf<kLanes>::type{};
  }
};

// Transforms one tile. Writes position p of channel c to out[p * step + c].
template <class Transform, int kLanes, class Strip>
REPRISE_INLINE void transform_strip(float* out, uint64_t step, const Strip& in) {
  using V = typename VectorOf<kLanes>::type;
  V values[Transform::kIn][Transform::kIn], points[Transform::kOut][Transform::kOut];
  REPRISE_UNROLLED for (int r = 0; r < Transform::kIn; ++r) {
    REPRISE_UNROLLED for (int s = 0; s < Transform::kIn; ++s) in.read(values[r][s], r * Transform::kIn + s);
  }
  transform_tile<Transform>(points, values);
  REPRISE_UNROLLED for (int r = 0; r < Transform::kOut; ++r) {
    REPRISE_UNROLLED for (int s = 0; s < Transform::kOut; ++s) {
      write_vector<kLanes>(out + static_cast<uint32_t>(r * Transform::kOut + s) * step + in.c, points[r][s]);
    }
  }
}
template <class Transform, int kLanes, typename Stored>
REPRISE_INLINE void transform_body(float* out, uint64_t step, const Stored* const* in, uint32_t channels) {
  uint32_t c = 0;
  for (; c + kLanes <= channels; c += kLanes)
    transform_strip<Transform, kLanes>(out, step, PlainStrip<kLanes, Stored>{in, c});
  for (; c < channels; ++c) transform_strip<Transform, 1>(out, step, PlainStrip<1, Stored>{in, c});
}
template <int kLanes, typename Stored>
REPRISE_INLINE void transform_normalised_strip(float* out, uint64_t step, const Stored* const* in, uint32_t c,
                                            const InputNorm& norm, uint32_t first) {
  NormalisedStrip<kLanes, Stored> strip;
  strip.in = in;
  strip.c = c;
  strip.norm.read(norm, uint64_t{first} + c);
  transform_strip<Input, kLanes>(out, step, strip);
}
template <int kLanes, typename Stored>
REPRISE_INLINE void transform_normalised_body(float* out, uint64_t step, const Stored* const* in, uint32_t channels,
                                           const InputNorm& norm, uint32_t first) {
  uint32_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) transform_normalised_strip<kLanes>(out, step, in, c, norm, first);
  for (; c < channels; ++c) transform_normalised_strip<1>(out, step, in, c, norm, first);
}

// Transforms a tile of products back, and adds the channels' bias if it is not null. Skips elements
// whose address in `out` is null.
template <class Transform, int kLanes, typename Stored>
REPRISE_INLINE void collect_strip(Stored* const* out, const float* in, uint64_t step, uint32_t c, bool accumulate,
                                  const float* bias) {
  using V = typename VectorOf<kLanes>::type;
  V points[Transform::kIn][Transform::kIn], values[Transform::kOut][Transform::kOut];
  REPRISE_UNROLLED for (int r = 0; r < Transform::kIn; ++r) {
    REPRISE_UNROLLED for (int s = 0; s < Transform::kIn; ++s) {
      read_vector<kLanes>(points[r][s], in + static_cast<uint32_t>(r * Transform::kIn + s) * step + c);
    }
  }
  transform_tile<Transform>(values, points);
  REPRISE_UNROLLED for (int r = 0; r < Transform::kOut; ++r) {
    REPRISE_UNROLLED for (int s = 0; s < Transform::kOut; ++s) {
      Stored* to = out[r * Transform::kOut + s];
      if (to == nullptr) continue;
      V value = values[r][s];
      if (bias != nullptr) {
        V start;
        read_vector<kLanes>(start, bias + c);
        value = start + value;
      }
      if (accumulate) {
        V before;
        read_vector<kLanes>(before, to + c);
        value = before + value;
      }
      write_vector<kLanes>(to + c, value);
    }
  }
}
template <class Transform, int kLanes, typename Stored>
REPRISE_INLINE void collect_body(Stored* const* out, const float* in, uint64_t step, uint32_t channels, bool accumulate,
                                 const float* bias) {
  uint32_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) collect_strip<Transform, kLanes>(out, in, step, c, accumulate, bias);
  for (; c < channels; ++c) collect_strip<Transform, 1>(out, in, step, c, accumulate, bias);
}

#define REPRISE_TRANSFORM(name, Transform)                                                           \
  REPRISE_STORAGE_LEVELS(name, (transform_body<Transform, kLanes>),                                  \
                         (float* out, uint64_t step, const Stored* const* in, uint32_t channels), \
                         (out, step, in, channels))
#define REPRISE_COLLECT(name, Transform)                                                                          \
  REPRISE_STORAGE_LEVELS(name, (collect_body<Transform, kLanes>),                                                 \
                         (Stored* const* out, const float* in, uint64_t step, uint32_t channels, bool accumulate, \
                          const float* bias),                                                                     \
                         (out, in, step, channels, accumulate, bias))
REPRISE_TRANSFORM(transform_plain_input, Input)
REPRISE_TRANSFORM(transform_filter, Filter)
REPRISE_TRANSFORM(transform_gradient, OutputGradient)
REPRISE_COLLECT(collect_output, Output)
REPRISE_COLLECT(collect_filter, FilterGradient)
REPRISE_STORAGE_LEVELS(transform_normalised_input, transform_normalised_body<kLanes>,
                       (float* out, uint64_t step, const Stored* const* in, uint32_t channels, const InputNorm& norm,
                        uint32_t first),
                       (out, step, in, channels, norm, first))
#undef REPRISE_TRANSFORM
#undef REPRISE_COLLECT
#undef REPRISE_UNROLLED

// ---- tiles of an image ----

struct TileAt {
  uint64_t image;
  uint32_t row, column;  // position of the tile's first output

  TileAt(const DirectShape& s, uint64_t index) {
    const uint64_t across = divide_up(s.Q, kWinogradTile), down = divide_up(s.P, kWinogradTile);
    image = index / (across * down);
    row = static_cast<uint32_t>(index / across % down) * kWinogradTile;
    column = static_cast<uint32_t>(index % across) * kWinogradTile;
  }
};

// Finds the addresses of channel c of a tile's 4 x 4 inputs. For an input outside the image, the
// address is that of kZeros, which has zeros for kKc channels.
template <typename Stored>
void find_inputs(const Stored** pixels, const DirectShape& s, const ConvSource<Stored>& source, const TileAt& at,
                 uint32_t c) {
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t row = at.row + r - s.pad_h;  // wraps to a large number above the image
    for (uint32_t t = 0; t < 4; ++t) {
      const uint32_t column = at.column + t - s.pad_w;
      const bool inside = row < s.H && column < s.W;
      pixels[r * 4 + t] = inside ? source.data + ((at.image * s.H + row) * s.W + column) * s.C + c : kZeros<Stored>;
    }
  }
}

// Transforms input channels [c, c + channels) of a tile.
template <typename Stored>
void transform_input(VectorLevel level, float* out, uint64_t step, const DirectShape& s,
                     const ConvSource<Stored>& source, const TileAt& at, uint32_t c, uint32_t channels) {
  const Stored* pixels[16];
  find_inputs(pixels, s, source, at, c);
  if (source.normalises()) return transform_normalised_input(level, out, step, pixels, channels, source.norm, c);
  transform_plain_input(level, out, step, pixels, channels);
}

// Calls use(i, row, column) for each output of the tile that is inside the image. `i` is the
// output's index among the four outputs of the tile.
template <typename Use>
void for_each_output(const DirectShape& s, const TileAt& at, const Use& use) {
  for (uint32_t r = 0; r < kWinogradTile; ++r) {
    for (uint32_t t = 0; t < kWinogradTile; ++t) {
      if (at.row + r < s.P && at.column + t < s.Q) use(r * kWinogradTile + t, at.row + r, at.column + t);
    }
  }
}

constexpr uint64_t kMaxTileTasks = 64;  // maximum tasks that transform the tiles of a chunk

// ---- the correlation ----

constexpr uint32_t kStripChannels = 16;  // channels whose filters are transformed together

// Transformed filters of output channels [first, first + width), position by position. The filters
// of a position are in panels of the GEMM tile.
struct FilterBlock {
  uint32_t first, width, panels;
  float* packed;

  float* panel(const DirectShape& s, uint32_t columns, uint32_t position, uint32_t p) const {
    return packed + (uint64_t{position} * panels + p) * s.C * columns;
  }
};

void find_taps(const float** taps, const DirectWeights& weights, int64_t output, int64_t channel) {
  for (int64_t tap = 0; tap < 9; ++tap) {
    taps[tap] = weights.w + output * weights.output + tap / 3 * weights.row + tap % 3 * weights.column +
                channel * weights.channel;
  }
}

// Transforms and packs the filters of kStripChannels channels of a panel. Filters whose weights are
// contiguous in memory are transformed together: those of all outputs for one channel, or those of
// all channels for one output.
void pack_filter_strip(VectorLevel level, const DirectShape& s, const DirectWeights& weights, const FilterBlock& block,
                       uint32_t columns, uint32_t p, uint32_t c0) {
  const uint32_t first = p * columns, count = static_cast<uint32_t>(smaller(columns, block.width - first));
  const float* taps[9];
  if (weights.output == 1) {
    for (uint32_t c = c0; c < c0 + kStripChannels; ++c) {
      find_taps(taps, weights, block.first + first, c);
      float* line = block.panel(s, columns, 0, p) + uint64_t{c} * columns;
      const uint64_t step = uint64_t{block.panels} * s.C * columns;
      transform_filter(level, line, step, taps, count);
      for (uint32_t position = 0; count < columns && position < kWinogradPositions; ++position) {
        std::memset(line + position * step + count, 0, (columns - count) * sizeof(float));
      }
    }
    return;
  }
  alignas(64) float strips[kWinogradPositions * kMaxNr * kStripChannels];
  const uint64_t step = uint64_t{kMaxNr} * kStripChannels;
  for (uint32_t i = 0; i < count; ++i) {
    find_taps(taps, weights, block.first + first + i, c0);
    transform_filter(level, strips + i * kStripChannels, step, taps, kStripChannels);
  }
  for (uint32_t position = 0; position < kWinogradPositions; ++position) {
    const float* lines[kMaxNr];
    for (uint32_t i = 0; i < columns; ++i)
      lines[i] = i < count ? strips + position * step + i * kStripChannels : kZeroLine;
    pack_lines(level, block.panel(s, columns, position, p) + uint64_t{c0} * columns, columns, lines, kStripChannels, 0);
  }
}

void pack_filters(const KernelContext& context, const DirectShape& s, const DirectWeights& weights,
                  const FilterBlock& block, uint32_t columns) {
  const uint32_t strips = s.C / kStripChannels;
  parallel_for(*context.workers, block.panels * strips, [&](uint32_t task) {
    pack_filter_strip(cpu_machine(context).level, s, weights, block, columns, task / strips,
                      task % strips * kStripChannels);
  });
}

// Transformed inputs of tiles [first, first + count): position by position; the channels of a tile
// are contiguous.
struct TileChunk {
  uint64_t first, count;
  float* inputs;
  uint64_t line, step;  // floats from tile to tile, and from position to position
};

template <typename Stored>
void transform_tiles(const KernelContext& context, const DirectShape& s, const ConvSource<Stored>& source,
                  const TileChunk& chunk) {
  for_each_piece(*context.workers, split_at_most(chunk.count, kMaxTileTasks, 1), [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const TileAt at(s, chunk.first + t);
      for (uint32_t c = 0; c < s.C; c += kKc) {
        transform_input(cpu_machine(context).level, chunk.inputs + t * chunk.line + c, chunk.step, s, source, at, c,
                     static_cast<uint32_t>(smaller(kKc, s.C - c)));
      }
    }
  });
}

// Computes product[position][tile][column]: multiplies one panel of filters by `rows` tiles from
// `first` on, at all positions. Computes whole register tiles; rows beyond the chunk are undefined
// and not used.
void multiply_panel(const TileGeometry& g, const DirectShape& s, const FilterBlock& block, const TileChunk& chunk,
                    uint32_t p, uint64_t first, uint32_t rows, float* product) {
  alignas(64) float a[kKc * kMaxMr + kPanelSlack];
  for (uint32_t position = 0; position < kWinogradPositions; ++position) {
    const MatrixPacker tiles{chunk.inputs + position * chunk.step + first * chunk.line,
                             static_cast<int64_t>(chunk.line), 1};
    const MatrixOutput output{product + uint64_t{position} * rows * g.columns, g.columns};
    float* panel = block.panel(s, g.columns, position, p);
    for (uint32_t k0 = 0; k0 < s.C; k0 += kKc) {
      const uint32_t kc = static_cast<uint32_t>(smaller(kKc, s.C - k0));
      const Block piece{0, k0, g.columns, kc, k0 > 0, panel + uint64_t{k0} * g.columns};
      for (uint32_t r = 0; r < rows; r += g.rows)
        run_panel(g, piece, tiles, output, g.range(g.rows, g.rows, r, k0, kc), 0, g.columns, a);
    }
  }
}

// Reports the rows of outputs of tiles [first, end), for `columns` channels, to `statistics`.
template <typename Stored>
void tell_written(const OutputStatistics<Stored>& statistics, const DirectShape& s, uint64_t first, uint64_t end,
                  uint32_t columns) {
  const uint64_t across = divide_up(s.Q, kWinogradTile);
  for (uint64_t t = first; t < end;) {
    const TileAt at(s, t);
    const uint64_t next = smaller(end, (t / across + 1) * across);  // the tiles of a row are contiguous
    const uint64_t width = smaller(s.Q - at.column, (next - t) * kWinogradTile);
    for (uint64_t row = at.image * s.P + at.row, last = smaller(row + kWinogradTile, (at.image + 1) * s.P); row < last;
         ++row) {
      statistics.written(row * s.Q + at.column, row * s.Q + at.column + width, columns);
    }
    t = next;
  }
}

template <typename Stored>
void multiply_tiles(const KernelContext& context, const TileGeometry& g, const DirectShape& s, const FilterBlock& block,
                    const TileChunk& chunk, const DirectOutputOf<Stored>& output) {
  const uint32_t rows = static_cast<uint32_t>(larger(1, g.blocking.winograd_tiles / g.rows)) * g.rows;
  const uint32_t groups = static_cast<uint32_t>(divide_up(chunk.count, rows));
  parallel_for(*context.workers, groups * block.panels, [&](uint32_t task) {
    alignas(64) float product[kWinogradPositions * kMaxMr * kMaxNr];
    const uint32_t p = task % block.panels,
                   columns = static_cast<uint32_t>(smaller(g.columns, block.width - p * g.columns));
    const uint64_t first = uint64_t{task / block.panels} * rows, end = smaller(chunk.count, first + rows);
    multiply_panel(g, s, block, chunk, p, first, rows, product);
    for (uint64_t t = first; t < end; ++t) {
      const TileAt at(s, chunk.first + t);
      Stored* to[4] = {};
      for_each_output(s, at, [&](uint32_t i, uint32_t row, uint32_t column) {
        to[i] = output.data + at.image * output.image + row * output.row + column * output.pixel + block.first +
                p * g.columns;
      });
      collect_output(g.level, to, product + (t - first) * g.columns, uint64_t{rows} * g.columns, columns,
                     output.accumulate, output.bias == nullptr ? nullptr : output.bias + block.first + p * g.columns);
    }
    if (output.statistics != nullptr)
      tell_written(*output.statistics, s, chunk.first + first, chunk.first + end, columns);
  });
}

// ---- the weight gradient ----

// Input channels [c0, c0 + C) and output channels [k0, k0 + K) of dw, and their transforms: inputs
// [position][panel][tile][column], gradients [position][tile][output], and their product
// [position][output][input].
struct GradientBlock {
  uint32_t c0, C, k0, K;
  uint32_t panels, columns;  // number of panels of the inputs; columns of a panel
  float *inputs, *gradients, *product;

  uint64_t line() const { return uint64_t{panels} * columns; }  // floats between the rows of two successive outputs
};

template <typename Stored>
void transform_block(const KernelContext& context, const DirectShape& s, const GradientBlock& block,
                  const ConvSource<Stored>& source, const Stored* dy, uint64_t first, uint32_t depth) {
  for_each_piece(*context.workers, split_at_most(depth, kMaxTileTasks, 1), [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const TileAt at(s, first + t);
      for (uint32_t p = 0; p < block.panels; ++p) {
        const uint32_t c = p * block.columns, count = static_cast<uint32_t>(smaller(block.columns, block.C - c));
        float* line = block.inputs + (uint64_t{p} * kWinogradDepth + t) * block.columns;
        const uint64_t step = kWinogradDepth * block.line();
        transform_input(cpu_machine(context).level, line, step, s, source, at, block.c0 + c, count);
        for (uint32_t position = 0; count < block.columns && position < kWinogradPositions; ++position) {
          std::memset(line + position * step + count, 0, (block.columns - count) * sizeof(float));
        }
      }
      const Stored* outputs[4] = {kZeros<Stored>, kZeros<Stored>, kZeros<Stored>, kZeros<Stored>};
      for_each_output(s, at, [&](uint32_t i, uint32_t row, uint32_t column) {
        outputs[i] = dy + ((at.image * s.P + row) * s.Q + column) * s.K + block.k0;
      });
      transform_gradient(cpu_machine(context).level, block.gradients + t * block.K, uint64_t{kWinogradDepth} * block.K,
                      outputs, block.K);
    }
  });
}

void multiply_block(const KernelContext& context, const TileGeometry& g, const GradientBlock& block, uint32_t depth,
                    bool add) {
  parallel_for(*context.workers, kWinogradPositions * block.panels, [&](uint32_t task) {
    alignas(64) float a[kKc * kMaxMr + kPanelSlack], edge[kMaxMr * kMaxNr];
    const uint32_t position = task / block.panels, p = task % block.panels;
    const MatrixPacker gradients{block.gradients + uint64_t{position} * kWinogradDepth * block.K, 1, block.K};
    const MatrixOutput output{block.product + uint64_t{position} * block.K * block.line() + p * g.columns,
                              static_cast<int64_t>(block.line())};
    const Block piece{0, 0, g.columns, depth, add, block.inputs + uint64_t{task} * kWinogradDepth * g.columns, edge};
    for (uint32_t k = 0; k < block.K; k += g.rows) {
      const uint32_t rows = static_cast<uint32_t>(smaller(g.rows, block.K - k));
      run_panel(g, piece, gradients, output, g.range(g.rows, rows, k, 0, depth), 0, g.columns, a);
    }
  });
}

void collect_block(const KernelContext& context, const DirectShape& s, const GradientBlock& block, float* dw,
                   bool accumulate) {
  parallel_for(*context.workers, block.K, [&](uint32_t k) {
    float* taps[9];
    for (uint32_t tap = 0; tap < 9; ++tap) taps[tap] = dw + ((uint64_t{block.k0} + k) * 9 + tap) * s.C + block.c0;
    collect_filter(cpu_machine(context).level, taps, block.product + k * block.line(), block.K * block.line(), block.C,
                   accumulate, nullptr);
  });
}

}  // namespace

template <typename Stored>
void winograd_correlate(const KernelContext& context, const DirectShape& s, const DirectOutputOf<Stored>& output,
                        const ConvSource<Stored>& source, const DirectWeights& weights, void* scratch) {
  const TileGeometry g(context);
  const uint32_t maximum = g.blocking.winograd_block / g.columns * g.columns;
  const uint64_t tiles = winograd_tiles(s),
                 chunk_tiles = winograd_chunk_tiles(s.C, g.blocking.winograd_floats) / g.rows * g.rows;
  float* packed = static_cast<float*>(scratch);
  float* inputs = packed + winograd_filter_floats(s.C, s.K);
  for (uint32_t j = 0; j < s.K; j += maximum) {
    const uint32_t width = static_cast<uint32_t>(smaller(maximum, s.K - j));
    const FilterBlock block{j, width, static_cast<uint32_t>(divide_up(width, g.columns)), packed};
    pack_filters(context, s, weights, block, g.columns);
    for (uint64_t t = 0; t < tiles; t += chunk_tiles) {
      const uint64_t line = s.C + kWinogradPad;
      const TileChunk chunk{t, smaller(chunk_tiles, tiles - t), inputs, line, chunk_tiles * line};
      transform_tiles(context, s, source, chunk);
      multiply_tiles(context, g, s, block, chunk, output);
    }
  }
}

template <typename Stored>
void winograd_weight_gradient(const KernelContext& context, const DirectShape& s, float* dw,
                              const ConvSource<Stored>& source, const Stored* dy, bool accumulate, void* scratch) {
  const TileGeometry g(context);
  const uint32_t maximum = g.blocking.winograd_block / g.columns * g.columns;
  const uint64_t tiles = winograd_tiles(s);
  GradientBlock block{};
  block.columns = g.columns;
  block.inputs = static_cast<float*>(scratch);
  block.product = block.inputs + kWinogradPositions * winograd_input_floats(s.C);
  block.gradients = block.product + kWinogradPositions * winograd_product_floats(s.C, s.K);
  for (block.k0 = 0; block.k0 < s.K; block.k0 += maximum) {
    block.K = static_cast<uint32_t>(smaller(maximum, s.K - block.k0));
    for (block.c0 = 0; block.c0 < s.C; block.c0 += maximum) {
      block.C = static_cast<uint32_t>(smaller(maximum, s.C - block.c0));
      block.panels = static_cast<uint32_t>(divide_up(block.C, g.columns));
      for (uint64_t t = 0; t < tiles; t += kWinogradDepth) {
        const uint32_t depth = static_cast<uint32_t>(smaller(kWinogradDepth, tiles - t));
        transform_block(context, s, block, source, dy, t, depth);
        multiply_block(context, g, block, depth, t > 0);
      }
      collect_block(context, s, block, dw, accumulate);
    }
  }
}

template void winograd_correlate(const KernelContext&, const DirectShape&, const DirectOutputOf<float>&,
                                 const ConvSource<float>&, const DirectWeights&, void*);
template void winograd_correlate(const KernelContext&, const DirectShape&, const DirectOutputOf<Bf16>&,
                                 const ConvSource<Bf16>&, const DirectWeights&, void*);
template void winograd_weight_gradient(const KernelContext&, const DirectShape&, float*, const ConvSource<float>&,
                                       const float*, bool, void*);
template void winograd_weight_gradient(const KernelContext&, const DirectShape&, float*, const ConvSource<Bf16>&,
                                       const Bf16*, bool, void*);

}  // namespace reprise
