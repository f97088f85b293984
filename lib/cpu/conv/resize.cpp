// Resizes images, channels last, row by row and with vectors of channels. The gradient is gathered:
// each pixel of dx is written once, and its sum has a fixed order.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

constexpr uint64_t kChannelsAtATime = 64;  // channels of a pixel that are summed at a time
constexpr int64_t kRowsAtATime = 16;       // rows of dy whose shares are computed at a time

// The sizes of a resized image, as uint64_t.
struct Lengths {
  uint64_t H, W, P, Q, C;
  explicit Lengths(const ResizeShape& s)
      : H(static_cast<uint64_t>(s.height.in)),
        W(static_cast<uint64_t>(s.width.in)),
        P(static_cast<uint64_t>(s.height.out)),
        Q(static_cast<uint64_t>(s.width.out)),
        C(s.C) {}
};

// Computes row p of the output of image n from the nearest pixels.
template <typename Stored>
void copy_row(const ResizeForwardArgsOf<Stored>& args, uint64_t n, uint64_t p) {
  const ResizeSide &height = args.shape.height, &width = args.shape.width;
  const Lengths s(args.shape);
  const Stored* x =
      args.x + (n * s.H + static_cast<uint64_t>(height.sources(static_cast<int64_t>(p)).near)) * s.W * s.C;
  Stored* y = args.y + (n * s.P + p) * s.Q * s.C;
  for (uint64_t q = 0; q < s.Q; ++q, y += s.C) {
    std::memcpy(y, x + static_cast<uint64_t>(width.sources(static_cast<int64_t>(q)).near) * s.C, s.C * sizeof(Stored));
  }
}

// Computes row p of the output of image n by interpolation between four pixels.
template <typename Stored>
REPRISE_INLINE void blend_row_body(const ResizeForwardArgsOf<Stored>& args, uint64_t n, uint64_t p) {
  const Lengths s(args.shape);
  const ResizeSide::Sources rows = args.shape.height.sources(static_cast<int64_t>(p));
  const Stored* near = args.x + (n * s.H + static_cast<uint64_t>(rows.near)) * s.W * s.C;
  const Stored* far = args.x + (n * s.H + static_cast<uint64_t>(rows.far)) * s.W * s.C;
  Stored* y = args.y + (n * s.P + p) * s.Q * s.C;
  const float down = rows.share;
  for (uint64_t q = 0; q < s.Q; ++q, y += s.C) {
    const ResizeSide::Sources columns = args.shape.width.sources(static_cast<int64_t>(q));
    const uint64_t a = static_cast<uint64_t>(columns.near) * s.C, b = static_cast<uint64_t>(columns.far) * s.C;
    const float across = columns.share;
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < s.C; ++c) {
      const float near_a = near[a + c], near_b = near[b + c], far_a = far[a + c], far_b = far[b + c];
      const float of_near = near_a + across * (near_b - near_a), of_far = far_a + across * (far_b - far_a);
      y[c] = of_near + down * (of_far - of_near);
    }
  }
}
REPRISE_STORAGE_LEVELS(blend_row, blend_row_body, (const ResizeForwardArgsOf<Stored>& args, uint64_t n, uint64_t p),
                       (args, n, p))

// Adds to `sums` the gradient of `channels` channels of pixel (i, j) of x: dy[p, q] times the
// pixel's share in each output pixel. Adds rows [p, p_end) of dy, at most kRowsAtATime. `dy` points
// to the image's first pixel, at the channel of the first sum.
template <typename Stored>
REPRISE_INLINE void gather_pixel(float* sums, uint64_t channels, const Stored* dy, const ResizeShape& s, int64_t i,
                                 int64_t j, int64_t p, int64_t p_end) {
  float shares[kRowsAtATime];
  for (int64_t r = p; r < p_end; ++r)
    shares[r - p] = s.height.interpolates ? ResizeSide::share_of(i, s.height.sources(r)) : 1.0f;
  for (int64_t q = s.width.first_reader(j), end = s.width.end_reader(j); q < end; ++q) {
    const float across = s.width.interpolates ? ResizeSide::share_of(j, s.width.sources(q)) : 1.0f;
    if (across == 0.0f) continue;
    for (int64_t r = p; r < p_end; ++r) {
      const float share = across * shares[r - p];
      if (share == 0.0f) continue;  // this output pixel does not read pixel (i, j)
      const Stored* from = dy + static_cast<uint64_t>(r * s.width.out + q) * s.C;
      for (uint64_t c = 0; c < channels; ++c) sums[c] += share * float{from[c]};
    }
  }
}

// Computes row i of the gradient of image n.
template <typename Stored>
REPRISE_INLINE void gather_row_body(const ResizeBackwardArgsOf<Stored>& args, uint64_t n, int64_t i) {
  const ResizeShape& s = args.shape;
  const Stored* dy = args.dy + n * static_cast<uint64_t>(s.height.out * s.width.out) * s.C;
  Stored* dx = args.dx + (n * static_cast<uint64_t>(s.height.in) + static_cast<uint64_t>(i)) *
                             static_cast<uint64_t>(s.width.in) * s.C;
  const int64_t first = s.height.first_reader(i), end = s.height.end_reader(i);
  for (int64_t j = 0; j < s.width.in; ++j, dx += s.C) {
    for (uint64_t c = 0; c < s.C; c += kChannelsAtATime) {
      const uint64_t channels = smaller(kChannelsAtATime, s.C - c);
      float sums[kChannelsAtATime] = {};
      for (int64_t p = first; p < end; p += kRowsAtATime) {
        const int64_t p_end = p + kRowsAtATime < end ? p + kRowsAtATime : end;
        if (channels == kChannelsAtATime) {  // constant bounds, so that the loop vectorises
          gather_pixel(sums, kChannelsAtATime, dy + c, s, i, j, p, p_end);
        } else {
          gather_pixel(sums, channels, dy + c, s, i, j, p, p_end);
        }
      }
      for (uint64_t k = 0; k < channels; ++k) dx[c + k] = args.accumulate_dx ? float{dx[c + k]} + sums[k] : sums[k];
    }
  }
}
REPRISE_STORAGE_LEVELS(gather_row, gather_row_body, (const ResizeBackwardArgsOf<Stored>& args, uint64_t n, int64_t i),
                       (args, n, i))

}  // namespace

template <typename Stored>
Status cpu_resize_forward(const KernelContext& context, const ResizeForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Lengths s(args.shape);
  for_each_piece(*context.workers, split_rows(args.shape.N * s.P, s.Q * s.C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row) {
      if (args.shape.height.interpolates) {
        blend_row(level, args, row / s.P, row % s.P);
      } else {
        copy_row(args, row / s.P, row % s.P);
      }
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_resize_backward(const KernelContext& context, const ResizeBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Lengths s(args.shape);
  // Elements that are read or written for one row of dx, approximately.
  const uint64_t moved = larger(s.P * s.Q * s.C / s.H, s.W * s.C);
  for_each_piece(*context.workers, split_rows(args.shape.N * s.H, moved), [&](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row) gather_row(level, args, row / s.H, static_cast<int64_t>(row % s.H));
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_resize_forward, ResizeForwardArgs)
REPRISE_INSTANTIATE(cpu_resize_backward, ResizeBackwardArgs)

}  // namespace reprise
