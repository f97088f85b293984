// The taps of windows that slide over an image, for the references of convolution and pooling.
#pragma once

#include "lib/plan.h"
#include "tests/ref/array.h"

namespace reprise::ref {

// Calls f(n, p, q, h, w, r, s) for every tap inside the image, of every window. The window is (p,
// q), its tap (r, s), and the pixel under the tap (h, w).
template <typename F>
void for_each_tap(size_t N, size_t H, size_t W, size_t P, size_t Q, const WindowAttribute& window, const F& f) {
  for (size_t n = 0; n < N; ++n)
    for (size_t p = 0; p < P; ++p)
      for (size_t q = 0; q < Q; ++q)
        for (size_t r = 0; r < window.kernel_h; ++r)
          for (size_t s = 0; s < window.kernel_w; ++s) {
            const long h = static_cast<long>(p * window.stride_h + r * window.dilation_h) - window.pad_top;
            const long w = static_cast<long>(q * window.stride_w + s * window.dilation_w) - window.pad_left;
            if (h < 0 || w < 0 || h >= static_cast<long>(H) || w >= static_cast<long>(W)) continue;
            f(n, p, q, static_cast<size_t>(h), static_cast<size_t>(w), r, s);
          }
}

// Returns the number of positions of a window in `length` + `padding` elements. Counts them by
// moving the window by `stride`.
inline size_t window_positions(size_t length, size_t kernel, size_t stride, size_t dilation, size_t padding) {
  size_t positions = 0;
  while (positions * stride + (kernel - 1) * dilation < length + padding) ++positions;
  return positions;
}
inline size_t window_rows(size_t H, const WindowAttribute& w) {
  return window_positions(H, w.kernel_h, w.stride_h, w.dilation_h, size_t{w.pad_top} + w.pad_bottom);
}
inline size_t window_columns(size_t W, const WindowAttribute& w) {
  return window_positions(W, w.kernel_w, w.stride_w, w.dilation_w, size_t{w.pad_left} + w.pad_right);
}

}  // namespace reprise::ref
