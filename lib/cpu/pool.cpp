// Max pooling and global average pooling, channels last.
// Here together because both walk windows of an image with the channels as vectors.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"

namespace reprise {
namespace {

constexpr uint32_t kPoolChannels = 64;  // of one pixel, held at once

// The window's elements [first, end) along one axis that lie inside the image.
struct Taps {
  uint32_t first, end;
};
constexpr Taps taps_inside(uint32_t output, uint32_t size, uint32_t kernel, uint32_t stride, uint32_t pad) {
  const uint32_t start = output * stride;  // counted from the padded image's edge
  const uint32_t first = start < pad ? pad - start : 0;
  const uint32_t room = size + pad - start;
  return {first, kernel < room ? kernel : room};
}

// Windows jump about in memory; the processor does not foresee them.
constexpr uint64_t kPixelsAhead = 8;

// One output pixel's window inside the image.
struct Window {
  uint64_t h,
      w;  // of the input pixel under tap (0, 0), as if the image went on; wraps below 0, and back when a tap is added
  Taps rows, columns;
};

// `channels` of one output pixel; a constant, so that loops become straight vectors, where kChannels is not 0.
// A NaN wins and stays, as torch has it, so that a broken step is noticed.
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
      const Stored* x = image + ((window.h + r) * s.W + window.w + t) * s.C;
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

// Output row p of image n.
template <typename Stored>
REPRISE_INLINE void max_pool_row_body(const MaxPoolForwardArgsOf<Stored>& args, uint32_t n, uint32_t p) {
  const PoolShape s = args.shape;
  const WindowAttribute& a = s.window;
  const Taps rows = taps_inside(p, s.H, a.kernel_h, a.stride, a.pad);
  const Stored* image = args.x + uint64_t{n} * s.H * s.W * s.C;
  for (uint32_t q = 0; q < s.Q; ++q) {
    const Window window{uint64_t{p} * a.stride - a.pad, uint64_t{q} * a.stride - a.pad, rows,
                        taps_inside(q, s.W, a.kernel_w, a.stride, a.pad)};
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

// The outputs [first, end) along one axis whose window covers `input`.
constexpr Taps outputs_covering(uint32_t input, uint32_t outputs, uint32_t kernel, uint32_t stride, uint32_t pad) {
  const uint32_t position = input + pad;
  const uint32_t first = position < kernel ? 0 : (position - kernel) / stride + 1;
  const uint32_t end = position / stride + 1;
  return {first, end < outputs ? end : outputs};
}

// One input pixel and the outputs whose windows cover it.
struct Covering {
  uint32_t h, w;  // of the input pixel, in the padded image
  Taps rows, columns;
};

// As max_pool_pixel has it, but gathered: each dx is written once, by one worker.
template <uint32_t kChannels, typename Stored>
REPRISE_INLINE void max_pool_gradient_pixel(Stored* dx, const uint8_t* index, const Stored* dy, const PoolShape& s,
                                            const Covering& covering, bool accumulate, uint32_t some) {
  const uint32_t channels = kChannels != 0 ? kChannels : some;
  float sum[kPoolChannels];
  for (uint32_t c = 0; c < channels; ++c) sum[c] = 0;
  for (uint32_t p = covering.rows.first; p < covering.rows.end; ++p) {
    for (uint32_t q = covering.columns.first; q < covering.columns.end; ++q) {
      const uint32_t tap = (covering.h - p * s.window.stride) * s.window.kernel_w + (covering.w - q * s.window.stride);
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

// Input row h of image n.
template <typename Stored>
REPRISE_INLINE void max_pool_gradient_row_body(const MaxPoolBackwardArgsOf<Stored>& args, uint32_t n, uint32_t h) {
  const PoolShape s = args.shape;
  const WindowAttribute& a = s.window;
  const Taps rows = outputs_covering(h, s.P, a.kernel_h, a.stride, a.pad);
  const uint64_t outputs = uint64_t{n} * s.P * s.Q * s.C;
  const uint8_t* index = args.index + outputs;
  const Stored* dy = args.dy + outputs;
  for (uint32_t w = 0; w < s.W; ++w) {
    const Covering covering{h + a.pad, w + a.pad, rows, outputs_covering(w, s.Q, a.kernel_w, a.stride, a.pad)};
    Stored* dx = args.dx + ((n * uint64_t{s.H} + h) * s.W + w) * s.C;
    uint32_t c = 0;
    for (; c + kPoolChannels <= s.C; c += kPoolChannels) {
      max_pool_gradient_pixel<kPoolChannels>(dx + c, index + c, dy + c, s, covering, args.accumulate_dx, 0);
    }
    for (; c + 16 <= s.C; c += 16)
      max_pool_gradient_pixel<16>(dx + c, index + c, dy + c, s, covering, args.accumulate_dx, 0);
    if (c < s.C) max_pool_gradient_pixel<0>(dx + c, index + c, dy + c, s, covering, args.accumulate_dx, s.C - c);
  }
}

template <typename Stored>
REPRISE_INLINE void mean_pixel_body(Stored* y, const Stored* x, uint64_t HW, uint64_t C, uint64_t channels) {
  double sum[kPoolChannels];
  for (uint64_t c = 0; c < channels; ++c) sum[c] = 0;
  uint64_t i = 0;
  for (; i + 4 <= HW; i += 4) {
    const Stored* x0 = x + i * C;
    const Stored *x1 = x0 + C, *x2 = x1 + C, *x3 = x2 + C;
    for (uint64_t c = 0; c < channels; ++c) sum[c] += static_cast<double>((float{x0[c]} + float{x1[c]}) + (float{x2[c]} + float{x3[c]}));
  }
  for (; i < HW; ++i) {
    for (uint64_t c = 0; c < channels; ++c) sum[c] += static_cast<double>(float{x[i * C + c]});
  }
  const double scale = 1.0 / static_cast<double>(HW);
  for (uint64_t c = 0; c < channels; ++c) y[c] = static_cast<float>(sum[c] * scale);
}

template <typename Stored>
REPRISE_INLINE void spread_pixel_body(const GlobalPoolArgsOf<Stored>& args, uint64_t first_pixel, uint64_t end_pixel) {
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

REPRISE_STORAGE_LEVELS(max_pool_row, max_pool_row_body, (const MaxPoolForwardArgsOf<Stored>& args, uint32_t n, uint32_t p),
                      (args, n, p))
REPRISE_STORAGE_LEVELS(max_pool_gradient_row, max_pool_gradient_row_body,
                      (const MaxPoolBackwardArgsOf<Stored>& args, uint32_t n, uint32_t h), (args, n, h))
REPRISE_STORAGE_LEVELS(mean_pixel, mean_pixel_body,
                      (Stored* y, const Stored* x, uint64_t HW, uint64_t C, uint64_t channels), (y, x, HW, C, channels))
REPRISE_STORAGE_LEVELS(spread_pixel, spread_pixel_body,
                      (const GlobalPoolArgsOf<Stored>& args, uint64_t first_pixel, uint64_t end_pixel),
                      (args, first_pixel, end_pixel))

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
  parallel_for(*context.workers, s.N * s.H, [&](uint32_t row) { max_pool_gradient_row(level, args, row / s.H, row % s.H); });
  return ok_status();
}

template <typename Stored>
Status cpu_global_pool_forward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Partition tiles{args.C, kPoolChannels};
  parallel_for(*context.workers, args.N, [&](uint32_t n) {
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
      const uint64_t channel = tiles.begin(tile);
      mean_pixel(level, args.out + uint64_t{n} * args.C + channel, args.in + uint64_t{n} * args.HW * args.C + channel, args.HW,
                 args.C, tiles.end(tile) - channel);
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_global_pool_backward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(uint64_t{args.N} * args.HW, args.C),
                 [&](uint64_t begin, uint64_t end) { spread_pixel(level, args, begin, end); });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_max_pool_forward, MaxPoolForwardArgs)
REPRISE_INSTANTIATE(cpu_max_pool_backward, MaxPoolBackwardArgs)
REPRISE_INSTANTIATE(cpu_global_pool_forward, GlobalPoolArgs)
REPRISE_INSTANTIATE(cpu_global_pool_backward, GlobalPoolArgs)

}  // namespace reprise
