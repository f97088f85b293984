// Max pooling, average pooling and global average pooling, channels last. Max and average pooling
// process the windows of an image; vectors are of channels.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"

namespace reprise {
namespace {

constexpr uint32_t kPoolChannels = 64;  // channels of a pixel that are processed at a time

// The elements [first, end) of a window, along one axis, that are inside the image.
struct Taps {
  uint32_t first, end;
  constexpr uint32_t count() const { return end - first; }
};
constexpr uint32_t steps(uint32_t distance, uint32_t step) {
  return step == 1 ? distance : static_cast<uint32_t>(divide_up(distance, step));
}
constexpr Taps taps_inside(uint32_t output, uint32_t size, const WindowSide& side) {
  const uint32_t start = output * side.stride;  // position in the padded image
  const uint32_t first = start < side.pad ? steps(side.pad - start, side.dilation) : 0;
  const uint32_t space = steps(size + side.pad - start, side.dilation);
  return {first, side.kernel < space ? side.kernel : space};
}

// Pixels to prefetch ahead: windows are scattered in memory, and hardware does not predict them.
constexpr uint64_t kPixelsAhead = 8;

// The part of an output pixel's window that is inside the image.
struct Window {
  // Input pixel of tap (0, 0). Outside the image the index wraps below 0, and wraps back when an
  // inside tap is added.
  uint64_t h, w;
  Taps rows, columns;
};

// Computes the maximum of each channel of one output pixel, and the tap at which it is. kChannels
// is the number of channels as a constant, so that loops vectorise; if kChannels is 0, the number
// is `some`. A NaN counts as the maximum, as in torch, so that a broken step is detected.
template <uint32_t kChannels, typename Stored>
REPRISE_INLINE void max_pool_pixel(Stored* y, uint8_t* index, const Stored* image, const PoolShape& s,
                                   const Window& window, uint32_t some) {
  constexpr uint64_t kLine = 64 / sizeof(Stored);
  const uint32_t channels = kChannels != 0 ? kChannels : some;
  const uint32_t first = window.rows.first * s.window.kernel_w + window.columns.first;
  float best[kPoolChannels];
  uint32_t winner[kPoolChannels];
  for (uint32_t c = 0; c < channels; ++c) best[c] = -__builtin_inff();
  for (uint32_t c = 0; c < channels; ++c) winner[c] = first;
  for (uint32_t r = window.rows.first; r < window.rows.end; ++r) {
    for (uint32_t t = window.columns.first; t < window.columns.end; ++t) {
      const uint32_t tap = r * s.window.kernel_w + t;
      const Stored* x = image + ((window.h + r * s.window.dilation_h) * s.W + window.w + t * s.window.dilation_w) * s.C;
      for (uint32_t c = 0; c < channels; c += kLine) __builtin_prefetch(x + kPixelsAhead * s.C + c);
      for (uint32_t c = 0; c < channels; ++c) {
        const float v = x[c];
        const bool wins = (v > best[c]) | (v != v);
        best[c] = wins ? v : best[c];
        winner[c] = wins ? tap : winner[c];
      }
    }
  }
  for (uint32_t c = 0; c < channels; ++c) y[c] = best[c];
  for (uint32_t c = 0; c < channels; ++c) index[c] = static_cast<uint8_t>(winner[c]);
}

Window window_of(const PoolShape& s, const Taps& rows, uint32_t p, uint32_t q) {
  const WindowAttribute& a = s.window;
  return {uint64_t{p} * a.stride_h - a.pad_top, uint64_t{q} * a.stride_w - a.pad_left, rows,
          taps_inside(q, s.W, a.columns())};
}

// Computes output row p of image n.
template <typename Stored>
REPRISE_INLINE void max_pool_row_body(const MaxPoolForwardArgsOf<Stored>& args, uint32_t n, uint32_t p) {
  const PoolShape s = args.shape;
  const Taps rows = taps_inside(p, s.H, s.window.rows());
  const Stored* image = args.x + uint64_t{n} * s.H * s.W * s.C;
  for (uint32_t q = 0; q < s.Q; ++q) {
    const Window window = window_of(s, rows, p, q);
    const uint64_t out = ((n * uint64_t{s.P} + p) * s.Q + q) * s.C;
    Stored* y = args.y + out;
    uint8_t* index = args.index + out;
    uint32_t c = 0;
    for (; c + kPoolChannels <= s.C; c += kPoolChannels)
      max_pool_pixel<kPoolChannels>(y + c, index + c, image + c, s, window, 0);
    for (; c + 16 <= s.C; c += 16) max_pool_pixel<16>(y + c, index + c, image + c, s, window, 0);
    if (c < s.C) max_pool_pixel<0>(y + c, index + c, image + c, s, window, s.C - c);
  }
}

// The outputs along one axis whose windows have a tap at `input`: first, first + step, ... below
// `end`. `tap` is this tap in the window of the first output. The tap decreases by tap_step from
// one output to the next.
struct Covering {
  uint32_t first, end, step, tap, tap_step;
};
constexpr Covering outputs_covering(uint32_t input, uint32_t outputs, const WindowSide& side) {
  const uint32_t position = input + side.pad, reach = side.extent() - 1;  // position: in the padded image
  const uint32_t end = position / side.stride + 1;
  Covering covering = {position <= reach ? 0 : (position - reach - 1) / side.stride + 1, end < outputs ? end : outputs,
                       1, 0, side.stride};
  if (side.dilation > 1) {
    const uint32_t common = common_divisor(side.dilation, side.stride);
    covering.step = side.dilation / common, covering.tap_step = side.stride / common;
    while (covering.first < covering.end && (position - covering.first * side.stride) % side.dilation != 0)
      ++covering.first;
  }
  if (covering.first < covering.end) covering.tap = (position - covering.first * side.stride) / side.dilation;
  return covering;
}

// Computes the gradient of max_pool_pixel(), by gathering: each dx is written once, by one worker.
template <uint32_t kChannels, typename Stored>
REPRISE_INLINE void max_pool_gradient_pixel(Stored* dx, const uint8_t* index, const Stored* dy, const PoolShape& s,
                                            const Covering& rows, const Covering& columns, bool accumulate,
                                            uint32_t some) {
  const uint32_t channels = kChannels != 0 ? kChannels : some;
  float sum[kPoolChannels];
  for (uint32_t c = 0; c < channels; ++c) sum[c] = 0;
  uint32_t row_tap = rows.tap;
  for (uint32_t p = rows.first; p < rows.end; p += rows.step, row_tap -= rows.tap_step) {
    uint32_t tap = row_tap * s.window.kernel_w + columns.tap;
    for (uint32_t q = columns.first; q < columns.end; q += columns.step, tap -= columns.tap_step) {
      const uint64_t at = (uint64_t{p} * s.Q + q) * s.C;
      for (uint32_t c = 0; c < channels; ++c) {
        const float passed = dy[at + c];
        sum[c] += index[at + c] == tap ? passed : 0.0f;
      }
    }
  }
  if (accumulate) {
    for (uint32_t c = 0; c < channels; ++c) sum[c] += dx[c];
  }
  for (uint32_t c = 0; c < channels; ++c) dx[c] = sum[c];
}

// Computes input row h of image n.
template <typename Stored>
REPRISE_INLINE void max_pool_gradient_row_body(const MaxPoolBackwardArgsOf<Stored>& args, uint32_t n, uint32_t h) {
  const PoolShape s = args.shape;
  const Covering rows = outputs_covering(h, s.P, s.window.rows());
  const uint64_t outputs = uint64_t{n} * s.P * s.Q * s.C;
  const uint8_t* index = args.index + outputs;
  const Stored* dy = args.dy + outputs;
  for (uint32_t w = 0; w < s.W; ++w) {
    const Covering columns = outputs_covering(w, s.Q, s.window.columns());
    Stored* dx = args.dx + ((n * uint64_t{s.H} + h) * s.W + w) * s.C;
    uint32_t c = 0;
    for (; c + kPoolChannels <= s.C; c += kPoolChannels) {
      max_pool_gradient_pixel<kPoolChannels>(dx + c, index + c, dy + c, s, rows, columns, args.accumulate_dx, 0);
    }
    for (; c + 16 <= s.C; c += 16)
      max_pool_gradient_pixel<16>(dx + c, index + c, dy + c, s, rows, columns, args.accumulate_dx, 0);
    if (c < s.C) max_pool_gradient_pixel<0>(dx + c, index + c, dy + c, s, rows, columns, args.accumulate_dx, s.C - c);
  }
}

// ---- the mean by window ----

// Returns 1 / n, where n is the number of taps inside the image, or of all taps if padding counts.
float share_of(const PoolShape& s, uint32_t rows, uint32_t columns) {
  const WindowAttribute& a = s.window;
  return 1.0f / static_cast<float>(a.counts_padding != 0 ? uint32_t{a.kernel_h} * a.kernel_w : rows * columns);
}

template <uint32_t kChannels, typename Stored>
REPRISE_INLINE void avg_pool_pixel(Stored* y, const Stored* image, const PoolShape& s, const Window& window,
                                   uint32_t some) {
  const uint32_t channels = kChannels != 0 ? kChannels : some;
  float sum[kPoolChannels];
  for (uint32_t c = 0; c < channels; ++c) sum[c] = 0;
  for (uint32_t r = window.rows.first; r < window.rows.end; ++r) {
    for (uint32_t t = window.columns.first; t < window.columns.end; ++t) {
      const Stored* x = image + ((window.h + r * s.window.dilation_h) * s.W + window.w + t * s.window.dilation_w) * s.C;
      for (uint32_t c = 0; c < channels; ++c) sum[c] += x[c];
    }
  }
  const float share = share_of(s, window.rows.count(), window.columns.count());
  for (uint32_t c = 0; c < channels; ++c) y[c] = sum[c] * share;
}

// Computes output row p of image n.
template <typename Stored>
REPRISE_INLINE void avg_pool_row_body(const AvgPoolArgsOf<Stored>& args, uint32_t n, uint32_t p) {
  const PoolShape s = args.shape;
  const Taps rows = taps_inside(p, s.H, s.window.rows());
  const Stored* image = args.in + uint64_t{n} * s.H * s.W * s.C;
  for (uint32_t q = 0; q < s.Q; ++q) {
    const Window window = window_of(s, rows, p, q);
    Stored* y = args.out + ((n * uint64_t{s.P} + p) * s.Q + q) * s.C;
    uint32_t c = 0;
    for (; c + kPoolChannels <= s.C; c += kPoolChannels) avg_pool_pixel<kPoolChannels>(y + c, image + c, s, window, 0);
    for (; c + 16 <= s.C; c += 16) avg_pool_pixel<16>(y + c, image + c, s, window, 0);
    if (c < s.C) avg_pool_pixel<0>(y + c, image + c, s, window, s.C - c);
  }
}

// Computes the gradient by gathering: each dx is written once, by one worker.
template <uint32_t kChannels, typename Stored>
REPRISE_INLINE void avg_pool_gradient_pixel(Stored* dx, const Stored* dy, const PoolShape& s, const Covering& rows,
                                            const Covering& columns, bool accumulate, uint32_t some) {
  const uint32_t channels = kChannels != 0 ? kChannels : some;
  float sum[kPoolChannels];
  for (uint32_t c = 0; c < channels; ++c) sum[c] = 0;
  for (uint32_t p = rows.first; p < rows.end; p += rows.step) {
    const uint32_t down = taps_inside(p, s.H, s.window.rows()).count();
    for (uint32_t q = columns.first; q < columns.end; q += columns.step) {
      const float share = share_of(s, down, taps_inside(q, s.W, s.window.columns()).count());
      const Stored* passed = dy + (uint64_t{p} * s.Q + q) * s.C;
      for (uint32_t c = 0; c < channels; ++c) sum[c] += passed[c] * share;
    }
  }
  if (accumulate) {
    for (uint32_t c = 0; c < channels; ++c) sum[c] += dx[c];
  }
  for (uint32_t c = 0; c < channels; ++c) dx[c] = sum[c];
}

// Computes input row h of image n.
template <typename Stored>
REPRISE_INLINE void avg_pool_gradient_row_body(const AvgPoolArgsOf<Stored>& args, uint32_t n, uint32_t h) {
  const PoolShape s = args.shape;
  const Covering rows = outputs_covering(h, s.P, s.window.rows());
  const Stored* dy = args.in + uint64_t{n} * s.P * s.Q * s.C;
  for (uint32_t w = 0; w < s.W; ++w) {
    const Covering columns = outputs_covering(w, s.Q, s.window.columns());
    Stored* dx = args.out + ((n * uint64_t{s.H} + h) * s.W + w) * s.C;
    uint32_t c = 0;
    for (; c + kPoolChannels <= s.C; c += kPoolChannels) {
      avg_pool_gradient_pixel<kPoolChannels>(dx + c, dy + c, s, rows, columns, args.accumulate_out, 0);
    }
    for (; c + 16 <= s.C; c += 16)
      avg_pool_gradient_pixel<16>(dx + c, dy + c, s, rows, columns, args.accumulate_out, 0);
    if (c < s.C) avg_pool_gradient_pixel<0>(dx + c, dy + c, s, rows, columns, args.accumulate_out, s.C - c);
  }
}

// ---- the mean over an image ----

template <typename Stored>
REPRISE_INLINE void mean_pixel_body(Stored* y, const Stored* x, uint64_t HW, uint64_t C, uint64_t channels) {
  double sum[kPoolChannels];
  for (uint64_t c = 0; c < channels; ++c) sum[c] = 0;
  uint64_t i = 0;
  for (; i + 4 <= HW; i += 4) {
    const Stored* x0 = x + i * C;
    const Stored *x1 = x0 + C, *x2 = x1 + C, *x3 = x2 + C;
    for (uint64_t c = 0; c < channels; ++c)
      sum[c] += static_cast<double>((float{x0[c]} + float{x1[c]}) + (float{x2[c]} + float{x3[c]}));
  }
  for (; i < HW; ++i) {
    for (uint64_t c = 0; c < channels; ++c) sum[c] += static_cast<double>(float{x[i * C + c]});
  }
  const double scale = 1.0 / static_cast<double>(HW);
  for (uint64_t c = 0; c < channels; ++c) y[c] = static_cast<float>(sum[c] * scale);
}

template <typename Stored>
REPRISE_INLINE void scatter_pixel_body(const GlobalPoolArgsOf<Stored>& args, uint64_t first_pixel, uint64_t end_pixel) {
  const float scale = 1.0f / static_cast<float>(args.HW);
  const uint64_t C = args.C;
  for (uint64_t pixel = first_pixel; pixel < end_pixel; ++pixel) {
    const Stored* dy = args.in + pixel / args.HW * C;
    Stored* dx = args.out + pixel * C;
    if (args.accumulate_out) {
      REPRISE_INDEPENDENT
      for (uint64_t c = 0; c < C; ++c) dx[c] = float{dx[c]} + dy[c] * scale;
    } else {
      REPRISE_INDEPENDENT
      for (uint64_t c = 0; c < C; ++c) dx[c] = dy[c] * scale;
    }
  }
}

REPRISE_STORAGE_LEVELS(max_pool_row, max_pool_row_body,
                       (const MaxPoolForwardArgsOf<Stored>& args, uint32_t n, uint32_t p), (args, n, p))
REPRISE_STORAGE_LEVELS(max_pool_gradient_row, max_pool_gradient_row_body,
                      (const MaxPoolBackwardArgsOf<Stored>& args, uint32_t n, uint32_t h), (args, n, h))
REPRISE_STORAGE_LEVELS(avg_pool_row, avg_pool_row_body, (const AvgPoolArgsOf<Stored>& args, uint32_t n, uint32_t p),
                       (args, n, p))
REPRISE_STORAGE_LEVELS(avg_pool_gradient_row, avg_pool_gradient_row_body,
                       (const AvgPoolArgsOf<Stored>& args, uint32_t n, uint32_t h), (args, n, h))
REPRISE_STORAGE_LEVELS(mean_pixel, mean_pixel_body,
                      (Stored* y, const Stored* x, uint64_t HW, uint64_t C, uint64_t channels), (y, x, HW, C, channels))
REPRISE_STORAGE_LEVELS(scatter_pixel, scatter_pixel_body,
                      (const GlobalPoolArgsOf<Stored>& args, uint64_t first_pixel, uint64_t end_pixel),
                      (args, first_pixel, end_pixel))

// Distributes the gradient over the first document of sequence n. Writes zeros to all later
// positions, unless dx is accumulated.
template <typename Stored>
void scatter_document(VectorLevel level, const GlobalPoolArgsOf<Stored>& args, uint64_t n) {
  GlobalPoolArgsOf<Stored> text = args;
  text.out += n * args.HW * args.C;
  text.in += n * args.C;
  text.HW = pooled_positions(args, n);
  scatter_pixel<Stored>(level, text, 0, text.HW);
  if (args.accumulate_out) return;
  for (uint64_t i = uint64_t{text.HW} * args.C; i < uint64_t{args.HW} * args.C; ++i) text.out[i] = 0.0f;
}

}  // namespace

template <typename Stored>
Status cpu_max_pool_forward(const KernelContext& context, const MaxPoolForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const PoolShape& s = args.shape;
  parallel_for(*context.workers, s.N * s.P, [&](uint32_t row) { max_pool_row(level, args, row / s.P, row % s.P); });
  return ok_status();
}

template <typename Stored>
Status cpu_max_pool_backward(const KernelContext& context, const MaxPoolBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const PoolShape& s = args.shape;
  parallel_for(*context.workers, s.N * s.H,
               [&](uint32_t row) { max_pool_gradient_row(level, args, row / s.H, row % s.H); });
  return ok_status();
}

template <typename Stored>
Status cpu_avg_pool_forward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const PoolShape& s = args.shape;
  parallel_for(*context.workers, s.N * s.P, [&](uint32_t row) { avg_pool_row(level, args, row / s.P, row % s.P); });
  return ok_status();
}

template <typename Stored>
Status cpu_avg_pool_backward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const PoolShape& s = args.shape;
  parallel_for(*context.workers, s.N * s.H,
               [&](uint32_t row) { avg_pool_gradient_row(level, args, row / s.H, row % s.H); });
  return ok_status();
}

template <typename Stored>
Status cpu_global_pool_forward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Partition tiles{args.C, kPoolChannels};
  parallel_for(*context.workers, args.N, [&](uint32_t n) {
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
      const uint64_t channel = tiles.begin(tile);
      mean_pixel(level, args.out + uint64_t{n} * args.C + channel, args.in + uint64_t{n} * args.HW * args.C + channel,
                 pooled_positions(args, n), args.C, tiles.end(tile) - channel);
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_global_pool_backward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  if (args.document_start != nullptr) {
    parallel_for(*context.workers, args.N, [&](uint32_t n) { scatter_document(level, args, n); });
    return ok_status();
  }
  for_each_piece(*context.workers, split_rows(uint64_t{args.N} * args.HW, args.C),
                 [&](uint64_t begin, uint64_t end) { scatter_pixel(level, args, begin, end); });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_max_pool_forward, MaxPoolForwardArgs)
REPRISE_INSTANTIATE(cpu_max_pool_backward, MaxPoolBackwardArgs)
REPRISE_INSTANTIATE(cpu_avg_pool_forward, AvgPoolArgs)
REPRISE_INSTANTIATE(cpu_avg_pool_backward, AvgPoolArgs)
REPRISE_INSTANTIATE(cpu_global_pool_forward, GlobalPoolArgs)
REPRISE_INSTANTIATE(cpu_global_pool_backward, GlobalPoolArgs)

}  // namespace reprise
