// Convolution on a small core, NHWC with KRSC weights, any number of groups: forward and the
// gradients of data and weight. No patch is formed: one tile (small_tile.h) computes eight outputs
// of three pixels, from rows (small_rows.h) and a panel of weights. In a weight's gradient, one
// tile computes eight weights of three outputs. If each channel has one output of its own, the
// columns of a tile are channels. There is one worker.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/small/small_panel.h"
#include "lib/cpu/small/small_rows.h"

namespace reprise {
namespace {

constexpr Status kScratchTooSmall = {Code::kBadPlan,
                                     "a small core's convolution must have the scratch bytes of its rule", 0};
constexpr uint32_t kPartsTogether = 8;

// Weights indexed by output, row and column of taps, and channel.
struct TapWeights {
  SmallWeights of;        // strides of outputs and of channels
  ptrdiff_t row, column;  // strides of the rows and of the columns of taps
};

// A correlation. `map` is the tensor that is read. `rows` and `columns` give the taps that each
// position of the output (place) reads from the map. Only `channels` channels of the map are read,
// from first_channel on.
template <typename Stored>
struct Correlation {
  const Stored* map;
  InputNorm norm;
  SmallRowsShape source;
  TapWalk rows, columns;  // taps in ascending order
  uint32_t images, first_channel, channels, outputs;
  TapWeights weights;
  SmallCorrelationScratch scratch;

  uint32_t taps() const { return rows.taps * columns.taps; }
  bool merges_taps() const { return columns.step == 1 && channels == source.C; }
  const float* place(const SmallRows<Stored>& ready, uint32_t a, uint32_t q, uint32_t r, uint32_t s) const {
    const int32_t row = static_cast<int32_t>(a) * rows.stride + rows.offset + static_cast<int32_t>(r) * rows.step;
    const int32_t column =
        static_cast<int32_t>(q) * columns.stride + columns.offset + static_cast<int32_t>(s) * columns.step;
    return ready.at(row) + static_cast<ptrdiff_t>(column) * static_cast<ptrdiff_t>(source.C) + first_channel;
  }
  void reach(SmallRows<Stored>& ready, uint32_t a) const {
    const int32_t first = static_cast<int32_t>(a) * rows.stride + rows.offset;
    ready.reach(first, first + static_cast<int32_t>(rows.taps - 1) * rows.step);
  }
};

// The outputs of a correlation: place (n, a, q) is at data + n * image + a * row + q * output.line.
template <typename Stored>
struct Outputs {
  SmallOutput<Stored> output;
  ptrdiff_t image, row;

  SmallOutput<Stored> at(uint32_t n, uint32_t a, uint32_t q, uint32_t first) const {
    SmallOutput<Stored> to = output;
    to.data += static_cast<ptrdiff_t>(n) * image + static_cast<ptrdiff_t>(a) * row +
               static_cast<ptrdiff_t>(q) * output.line + first;
    if (to.bias != nullptr) to.bias += first;
    return to;
  }
};

// Packs the weights of outputs [first, first + outputs) in panels, tap after tap.
template <typename Stored>
void pack_panels(const Correlation<Stored>& c, uint32_t first, uint32_t outputs, float* panels) {
  for (uint32_t j = 0; j < outputs; j += kSmallColumns) {
    for (uint32_t tap = 0; tap < c.taps(); ++tap, panels += c.channels * kSmallColumns) {
      SmallWeights w = c.weights.of;
      w.first += static_cast<ptrdiff_t>(first + j) * w.of_output +
                 static_cast<ptrdiff_t>(tap / c.columns.taps) * c.weights.row +
                 static_cast<ptrdiff_t>(tap % c.columns.taps) * c.weights.column;
      pack_small_panel(panels, w, outputs - j, c.channels);
    }
  }
}

// Computes one tile: the sums of `lines` pixels from (a, q) on. There must be at least one tap.
template <typename Stored>
void add_taps(const Correlation<Stored>& c, const SmallRows<Stored>& ready, uint32_t a, uint32_t q, uint32_t lines,
              const float* panel, float* sums) {
  const uint32_t runs = c.merges_taps() ? 1 : c.columns.taps, depths = c.channels * c.columns.taps / runs,
                 all = c.rows.taps * runs;
  for (uint32_t first = 0; first < all; first += kPartsTogether) {
    SmallPart parts[kPartsTogether];
    const uint32_t count = static_cast<uint32_t>(smaller(kPartsTogether, all - first));
    for (uint32_t i = 0; i < count; ++i, panel += depths * kSmallColumns) {
      parts[i] = {c.place(ready, a, q, (first + i) / runs, (first + i) % runs), panel};
    }
    add_by_lines(sums, lines, {parts, count, depths, first == 0},
                 static_cast<ptrdiff_t>(c.columns.stride) * static_cast<ptrdiff_t>(c.source.C));
  }
}

// Computes a correlation. Not inlined, so that its frame and the frame of correlate_channels() are
// not on the stack together.
template <typename Stored>
[[gnu::noinline]] void correlate(const Correlation<Stored>& c, const Outputs<Stored>& to, float* space) {
  float *const rows = c.scratch.rows == 0 ? nullptr : space, *const panels = space + c.scratch.rows;
  const uint32_t depth = c.taps() * c.channels, packed = small_panels(depth, c.outputs) * kSmallColumns;
  SmallRows<Stored> ready(c.map, c.norm, c.source, rows);
  for (uint32_t first = 0; first < c.outputs; first += packed) {
    const uint32_t outputs = static_cast<uint32_t>(smaller(packed, c.outputs - first));
    pack_panels(c, first, outputs, panels);
    for (uint32_t n = 0; n < c.images; ++n) {
      ready.begin(n);
      for (uint32_t a = 0; a < c.rows.places; ++a) {
        if (depth > 0) c.reach(ready, a);
        for (uint32_t j = 0; j < outputs; j += kSmallColumns) {
          const uint32_t columns = static_cast<uint32_t>(smaller(kSmallColumns, outputs - j));
          for (uint32_t q = 0; q < c.columns.places; q += kSmallLines) {
            float sums[kSmallLines * kSmallColumns];
            const uint32_t lines = static_cast<uint32_t>(smaller(kSmallLines, c.columns.places - q));
            if (depth > 0) add_taps(c, ready, a, q, lines, panels + j * depth, sums);
            else std::memset(sums, 0, sizeof sums);
            to.at(n, a, q, first + j).put(sums, lines, columns);
          }
        }
      }
    }
  }
}

// Computes one tile of eight channels that have one output each. Each row of taps is one part of
// the sums.
template <typename Stored>
void add_channel_taps(const Correlation<Stored>& c, const SmallRows<Stored>& ready, uint32_t a, uint32_t q,
                      uint32_t lines, const float* panel, float* sums) {
  const ptrdiff_t pixel = kSmallColumns;
  for (uint32_t first = 0; first < c.rows.taps; first += kPartsTogether) {
    SmallPart parts[kPartsTogether];
    const uint32_t count = static_cast<uint32_t>(smaller(kPartsTogether, c.rows.taps - first));
    for (uint32_t i = 0; i < count; ++i, panel += c.columns.taps * kSmallColumns)
      parts[i] = {c.place(ready, a, q, first + i, 0), panel};
    add_by_channels(sums, lines, {parts, count, c.columns.taps, first == 0}, c.columns.stride * pixel,
                    c.columns.step * pixel, pixel);
  }
}

// Computes a correlation in which each channel has one output of its own, eight channels at a time.
template <typename Stored>
[[gnu::noinline]] void correlate_channels(const Correlation<Stored>& c, const Outputs<Stored>& to, float* space) {
  float* const panel = space + c.scratch.rows;
  SmallRows<Stored> ready(c.map, c.norm, c.source, space);
  for (uint32_t first = 0; first < c.source.pixel; first += kSmallColumns) {
    const uint32_t channels = static_cast<uint32_t>(smaller(kSmallColumns, c.source.pixel - first));
    for (uint32_t tap = 0; tap < c.taps(); ++tap) {
      const ptrdiff_t at = c.weights.of.first + static_cast<ptrdiff_t>(first) * c.weights.of.of_output +
                           static_cast<ptrdiff_t>(tap / c.columns.taps) * c.weights.row +
                           static_cast<ptrdiff_t>(tap % c.columns.taps) * c.weights.column;
      pack_small_panel(panel + tap * kSmallColumns, {c.weights.of.w, at, c.weights.of.of_output, 0}, channels, 1);
    }
    for (uint32_t n = 0; n < c.images; ++n) {
      ready.begin(n, first);
      for (uint32_t a = 0; a < c.rows.places; ++a) {
        if (c.taps() > 0) c.reach(ready, a);
        for (uint32_t q = 0; q < c.columns.places; q += kSmallLines) {
          float sums[kSmallLines * kSmallColumns];
          const uint32_t lines = static_cast<uint32_t>(smaller(kSmallLines, c.columns.places - q));
          if (c.taps() > 0) add_channel_taps(c, ready, a, q, lines, panel, sums);
          else std::memset(sums, 0, sizeof sums);
          to.at(n, a, q, first).put(sums, lines, channels);
        }
      }
    }
  }
}

template <typename Stored>
void correlate_any(bool single, const Correlation<Stored>& c, const Outputs<Stored>& to, float* space) {
  if (single) correlate_channels(c, to, space);
  else correlate(c, to, space);
}

template <typename Stored>
constexpr bool as_they_are(const InputNorm& norm) {
  return kStoredAs<Stored> == DType::kF32 && norm.mean == nullptr;
}

// Computes one phase of the data gradient: dy, correlated with the taps that reach the phase.
template <typename Stored>
void run_phase(const ConvBackwardDataArgsOf<Stored>& args, const ConvShape& s, const DataPhase& phase, uint32_t group) {
  const ptrdiff_t S = s.window.kernel_w, inputs = s.group_inputs(), output = s.window.kernel_h * S * inputs;
  const TapWalk rows = forwards(phase.rows.walk), columns = forwards(phase.columns.walk);
  // If forwards() has reversed the taps, the first weights are those of the last tap of `walk`, and
  // the strides of taps are negated.
  const ptrdiff_t row = static_cast<ptrdiff_t>(phase.rows.tap_step) * S * inputs,
                  column = static_cast<ptrdiff_t>(phase.columns.tap_step) * inputs;
  const bool transposed_rows = phase.rows.walk.step < 0, transposed_columns = phase.columns.walk.step < 0;
  ptrdiff_t first =
      (phase.rows.tap * S + phase.columns.tap) * inputs + static_cast<ptrdiff_t>(group) * s.group_outputs() * output;
  if (transposed_rows && rows.taps > 0) first += static_cast<ptrdiff_t>(rows.taps - 1) * row;
  if (transposed_columns && columns.taps > 0) first += static_cast<ptrdiff_t>(columns.taps - 1) * column;
  const bool single = is_single(s);
  const Correlation<Stored> c = {.map = args.dy,
                                 .norm = {},
                                 .source = SmallRowsShape(s.P, s.Q, s.K, small_channels(s, s.K), rows, columns, 1),
                                 .rows = rows,
                                 .columns = columns,
                                 .images = s.N,
                                 .first_channel = group * s.group_outputs(),
                                 .channels = s.group_outputs(),
                                 .outputs = s.group_inputs(),
                                 .weights = {{args.w, first, single ? output : 1, output},
                                             transposed_rows ? -row : row,
                                             transposed_columns ? -column : column},
                                 .scratch = small_phase_scratch(s, phase, as_they_are<Stored>({}))};
  if (c.taps() == 0 && args.accumulate_dx) return;
  const ptrdiff_t line = static_cast<ptrdiff_t>(s.W) * static_cast<ptrdiff_t>(s.C), pixel = static_cast<ptrdiff_t>(s.C);
  const ptrdiff_t at = static_cast<ptrdiff_t>(phase.rows.first) * line +
                       static_cast<ptrdiff_t>(phase.columns.first) * pixel + static_cast<ptrdiff_t>(group) * inputs;
  const Outputs<Stored> to = {{args.dx + at, s.window.stride_w * pixel,
                               args.b == nullptr ? nullptr : args.b + static_cast<ptrdiff_t>(group) * inputs,
                               args.accumulate_dx},
                              static_cast<ptrdiff_t>(s.H) * line,
                              s.window.stride_h * line};
  correlate_any(single, c, to, static_cast<float*>(args.scratch));
}

// The weight gradient of one group, with its parts of the scratch.
template <typename Stored>
class Gradient {
 public:
  Gradient(const ConvBackwardWeightArgsOf<Stored>& args, const ConvShape& s, const SmallGradientScratch& scratch,
           uint32_t group)
      : args_(args),
        s_(s),
        group_(group),
        single_(is_single(s)),
        scratch_(scratch),
        rows_(forward_walk(s.window.rows(), s.P)),
        columns_(forward_walk(s.window.columns(), s.Q)),
        sums_(static_cast<float*>(args.scratch) + scratch_.rows),
        strip_(sums_ + scratch_.sums),
        ready_(args.x, args.norm,
               SmallRowsShape(s_.H, s_.W, s_.C, small_channels(s_, s_.C), rows_, columns_, scratch_.together),
               scratch_.rows == 0 ? nullptr : static_cast<float*>(args.scratch)) {}

  void run() {
    const uint32_t outputs = single_ ? s_.C : s_.group_outputs();
    for (uint32_t first = 0; first < outputs; first += scratch_.slice) {
      const uint32_t count = static_cast<uint32_t>(smaller(scratch_.slice, outputs - first));
      std::memset(sums_, 0, scratch_.sums * sizeof(float));
      for (uint32_t n = 0; n < s_.N; ++n) {
        ready_.begin(n, single_ ? first : 0);
        for (uint32_t p = 0; p < s_.P; p += scratch_.together)
          add_rows(n, p, static_cast<uint32_t>(smaller(scratch_.together, s_.P - p)), first, count);
      }
      single_ ? put_channels(first, count) : put(first, count);
    }
  }

 private:
  // Returns rows [p, p + together) of dy from channel `first` on, as f32: in place, or copied to
  // the strip. Sets `pixel` to the floats from one pixel to the next.
  const float* rows_of_dy(uint32_t n, uint32_t p, uint32_t together, uint32_t first, uint32_t count,
                          ptrdiff_t& pixel) const {
    const Stored* from = args_.dy + (size_t{n} * s_.P + p) * s_.Q * s_.K + size_t{group_} * s_.group_outputs() + first;
    pixel = static_cast<ptrdiff_t>(s_.K);
    if constexpr (std::is_same_v<Stored, float>) {
      if (scratch_.strip == 0) return from;
    }
    pixel = static_cast<ptrdiff_t>(single_ ? small_columns(count) : count);
    float* to = strip_;
    for (size_t i = 0; i < size_t{together} * s_.Q; ++i, from += s_.K, to += pixel) {
      for (uint32_t k = 0; k < count; ++k) to[k] = from[k];
      for (uint32_t k = count; k < static_cast<uint32_t>(pixel); ++k) to[k] = 0.0f;
    }
    return strip_;
  }
  void add_rows(uint32_t n, uint32_t p, uint32_t together, uint32_t first, uint32_t count) {
    const int32_t top = static_cast<int32_t>(p) * rows_.stride + rows_.offset;
    ready_.reach(top, top + static_cast<int32_t>(together - 1) * rows_.stride +
                          static_cast<int32_t>(rows_.taps - 1) * rows_.step);
    ptrdiff_t dy_pixel = 0;
    const float* dy = rows_of_dy(n, p, together, first, count, dy_pixel);
    float* sums = sums_;
    const uint32_t tiles_down = single_ ? 1 : static_cast<uint32_t>(divide_up(count, kSmallLines));
    for (uint32_t tile = 0; tile < tiles_down; ++tile) {
      for (uint32_t r = 0; r < rows_.taps; ++r) {
        SmallPart rows[kSmallRowsTogether];  // rows of dy, and of x
        for (uint32_t g = 0; g < together; ++g) {
          const int32_t row = top + static_cast<int32_t>(g) * rows_.stride + static_cast<int32_t>(r) * rows_.step;
          rows[g] = {dy + static_cast<ptrdiff_t>(g) * static_cast<ptrdiff_t>(s_.Q) * dy_pixel +
                         (single_ ? 0 : tile * kSmallLines),
                     ready_.at(row) + (single_ ? 0 : group_ * s_.group_inputs())};
        }
        for (uint32_t u = 0; u < scratch_.runs; ++u)
          sums = add_run(rows, together, u, count - tile * kSmallLines, dy_pixel, sums);
      }
    }
  }
  // Adds the products of run `u` of a row of taps to the tiles of this run, for at most `outputs`
  // outputs. Returns the address of the next run's tiles.
  float* add_run(const SmallPart* rows, uint32_t together, uint32_t u, uint32_t outputs, ptrdiff_t dy_pixel,
                 float* sums) const {
    const ptrdiff_t C = single_ ? kSmallColumns : static_cast<ptrdiff_t>(s_.C), x_pixel = columns_.stride * C;
    const uint32_t tap = single_ ? u * kSmallLines : u;
    const ptrdiff_t column = (columns_.offset + static_cast<int32_t>(tap) * columns_.step) * C;
    const uint32_t lines = static_cast<uint32_t>(smaller(kSmallLines, single_ ? columns_.taps - tap : outputs));
    for (uint32_t j = 0; j < scratch_.run; j += kSmallColumns, sums += kSmallLines * kSmallColumns) {
      SmallPart parts[kSmallRowsTogether];
      for (uint32_t g = 0; g < together; ++g) {
        const float *x = rows[g].b + column + j, *of_dy = rows[g].a + (single_ ? j : 0);
        parts[g] = single_ ? SmallPart{x, of_dy} : SmallPart{of_dy, x};
      }
      if (single_) add_by_channels(sums, lines, {parts, together, s_.Q}, columns_.step * C, x_pixel, dy_pixel);
      else add_by_depths(sums, lines, {parts, together, s_.Q}, dy_pixel, x_pixel);
    }
    return sums;
  }
  void put_weight(size_t at, float sum) const { args_.dw[at] = args_.accumulate_dw ? args_.dw[at] + sum : sum; }
  void put(uint32_t first, uint32_t count) const {
    const float* sums = sums_;
    const size_t inputs = s_.group_inputs(), row = size_t{columns_.taps} * inputs;
    for (uint32_t tile = 0; tile < count; tile += kSmallLines) {
      for (uint32_t r = 0; r < rows_.taps; ++r) {
        for (uint32_t u = 0; u < scratch_.runs; ++u) {
          for (uint32_t j = 0; j < scratch_.run; j += kSmallColumns, sums += kSmallLines * kSmallColumns) {
            for (uint32_t i = 0; i < kSmallLines && tile + i < count; ++i) {
              const size_t output = size_t{group_} * s_.group_outputs() + first + tile + i;
              for (uint32_t c = 0; c < kSmallColumns && j + c < scratch_.run; ++c) {
                put_weight((output * rows_.taps + r) * row + u * inputs + j + c, sums[i * kSmallColumns + c]);
              }
            }
          }
        }
      }
    }
  }
  void put_channels(uint32_t first, uint32_t count) const {
    const float* sums = sums_;
    for (uint32_t r = 0; r < rows_.taps; ++r) {
      for (uint32_t u = 0; u < scratch_.runs; ++u, sums += kSmallLines * kSmallColumns) {
        for (uint32_t i = 0; i < kSmallLines && u * kSmallLines + i < columns_.taps; ++i) {
          for (uint32_t c = 0; c < count; ++c) {
            put_weight((size_t{first + c} * rows_.taps + r) * columns_.taps + u * kSmallLines + i,
                       sums[i * kSmallColumns + c]);
          }
        }
      }
    }
  }

  const ConvBackwardWeightArgsOf<Stored>& args_;
  const ConvShape& s_;
  uint32_t group_;
  bool single_;
  const SmallGradientScratch& scratch_;
  TapWalk rows_, columns_;
  float *sums_, *strip_;
  SmallRows<Stored> ready_;
};

template <typename Stored>
void convolve(const ConvForwardArgsOf<Stored>& args, const ConvShape& s, const SmallCorrelationScratch& scratch) {
  const TapWalk rows = forward_walk(s.window.rows(), s.P), columns = forward_walk(s.window.columns(), s.Q);
  const ptrdiff_t inputs = s.group_inputs(), tap_row = s.window.kernel_w * inputs, output = s.window.kernel_h * tap_row;
  const ptrdiff_t pixel = static_cast<ptrdiff_t>(s.K), row = static_cast<ptrdiff_t>(s.Q) * pixel;
  const bool single = is_single(s);
  for (uint32_t group = 0; group < (single ? 1u : s.window.groups); ++group) {
    const uint32_t first = group * s.group_outputs();
    const Correlation<Stored> c = {.map = args.x,
                                   .norm = args.norm,
                                   .source = SmallRowsShape(s.H, s.W, s.C, small_channels(s, s.C), rows, columns, 1),
                                   .rows = rows,
                                   .columns = columns,
                                   .images = s.N,
                                   .first_channel = group * s.group_inputs(),
                                   .channels = s.group_inputs(),
                                   .outputs = s.group_outputs(),
                                   .weights = {{args.w, static_cast<ptrdiff_t>(first) * output, output, 1},
                                               tap_row,
                                               inputs},
                                   .scratch = scratch};
    const Outputs<Stored> to = {{args.y + first, pixel, args.b == nullptr ? nullptr : args.b + first, false},
                                static_cast<ptrdiff_t>(s.P) * row,
                                row};
    correlate_any(single, c, to, static_cast<float*>(args.scratch));
  }
}

}  // namespace

template <typename Stored>
Status cpu_small_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args) {
  const ConvShape s = small_shape(args.shape, as_they_are<Stored>(args.norm));
  const SmallCorrelationScratch scratch = small_forward_scratch(s, as_they_are<Stored>(args.norm));
  if (args.scratch_bytes < small_forward_scratch_bytes(s, scratch, args.mean != nullptr)) return kScratchTooSmall;
  convolve(args, s, scratch);
  if (args.mean == nullptr) return ok_status();
  return cpu_batch_norm_statistics<Stored>(context, {args.mean, args.rstd, args.y, args.scratch, args.scratch_bytes,
                                                     uint64_t{s.N} * s.P * s.Q, s.K, s.window.statistics_epsilon});
}

template <typename Stored>
Status cpu_small_conv_backward_data(const KernelContext&, const ConvBackwardDataArgsOf<Stored>& args) {
  const ConvShape s = small_shape(args.shape, as_they_are<Stored>({}));
  uint64_t floats = 0;
  for_each_phase(s, [&](const DataPhase& phase) {
    floats = larger(floats, small_phase_scratch(s, phase, as_they_are<Stored>({})).floats());
  });
  if (args.scratch_bytes < align_up(4 * floats)) return kScratchTooSmall;
  for_each_phase(s, [&](const DataPhase& phase) {
    for (uint32_t group = 0; group < (is_single(s) ? 1u : s.window.groups); ++group) run_phase(args, s, phase, group);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_small_conv_backward_weight(const KernelContext&, const ConvBackwardWeightArgsOf<Stored>& args) {
  constexpr bool kStoredF32 = kStoredAs<Stored> == DType::kF32;
  const ConvShape s = small_gradient_shape(args.shape, as_they_are<Stored>(args.norm), kStoredF32);
  const SmallGradientScratch scratch = small_gradient_scratch(s, as_they_are<Stored>(args.norm), kStoredF32);
  if (args.scratch_bytes < align_up(4 * scratch.floats())) return kScratchTooSmall;
  for (uint32_t group = 0; group < (is_single(s) ? 1u : s.window.groups); ++group)
    Gradient<Stored>(args, s, scratch, group).run();
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_small_conv_forward, ConvForwardArgs)
REPRISE_INSTANTIATE(cpu_small_conv_backward_data, ConvBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_small_conv_backward_weight, ConvBackwardWeightArgs)

}  // namespace reprise
