// Convolution and pooling in double, straight from their definitions.
// Here as the oracle of conv, max_pool and global_pool.
// It must not know how kernels block, pack or thread.
#pragma once

#include "lib/plan.h"
#include "tests/ref/array.h"

namespace reprise::ref {

// Calls f(n, p, q, h, w, r, s) for every tap of every window that lies inside the input.
template <typename F>
void for_each_tap(size_t N, size_t H, size_t W, size_t P, size_t Q, const WindowAttribute& window, const F& f) {
  for (size_t n = 0; n < N; ++n)
    for (size_t p = 0; p < P; ++p)
      for (size_t q = 0; q < Q; ++q)
        for (size_t r = 0; r < window.kernel_h; ++r)
          for (size_t s = 0; s < window.kernel_w; ++s) {
            const long h = static_cast<long>(p * window.stride + r) - window.pad;
            const long w = static_cast<long>(q * window.stride + s) - window.pad;
            if (h < 0 || w < 0 || h >= static_cast<long>(H) || w >= static_cast<long>(W)) continue;
            f(n, p, q, static_cast<size_t>(h), static_cast<size_t>(w), r, s);
          }
}

inline size_t window_positions(size_t length, size_t kernel, const WindowAttribute& window) {
  return (length + 2 * window.pad - kernel) / window.stride + 1;
}

inline Array conv_forward(const Array& x_in, const Array& w_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in), w = view<4>(w_in);
  const size_t P = window_positions(x.shape(1), window.kernel_h, window);
  const size_t Q = window_positions(x.shape(2), window.kernel_w, window);
  Array y_out = zeros({x.shape(0), P, Q, w.shape(0)});
  auto y = view<4>(y_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), P, Q, window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t k = 0; k < w.shape(0); ++k)
                   for (size_t c = 0; c < w.shape(3); ++c) y(n, p, q, k) += x(n, i, j, c) * w(k, r, s, c);
               });
  return y_out;
}

inline Array conv_backward_data(const Array& dy_in, const Array& w_in, size_t H, size_t W, const WindowAttribute& window) {
  const auto dy = view<4>(dy_in), w = view<4>(w_in);
  Array dx_out = zeros({dy.shape(0), H, W, w.shape(3)});
  auto dx = view<4>(dx_out);
  for_each_tap(dy.shape(0), H, W, dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t k = 0; k < w.shape(0); ++k)
                   for (size_t c = 0; c < w.shape(3); ++c) dx(n, i, j, c) += dy(n, p, q, k) * w(k, r, s, c);
               });
  return dx_out;
}

inline Array conv_backward_weight(const Array& x_in, const Array& dy_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in), dy = view<4>(dy_in);
  Array dw_out = zeros({dy.shape(3), window.kernel_h, window.kernel_w, x.shape(3)});
  auto dw = view<4>(dw_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t k = 0; k < dy.shape(3); ++k)
                   for (size_t c = 0; c < x.shape(3); ++c) dw(k, r, s, c) += dy(n, p, q, k) * x(n, i, j, c);
               });
  return dw_out;
}

struct Pooled {
  Array y;
  Array index;  // r * S + s of the first maximum; padding never wins
};

inline Pooled max_pool_forward(const Array& x_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in);
  const size_t P = window_positions(x.shape(1), window.kernel_h, window);
  const size_t Q = window_positions(x.shape(2), window.kernel_w, window);
  const double lowest = -std::numeric_limits<double>::infinity();
  Pooled out{Array({x.shape(0), P, Q, x.shape(3)}, lowest), Array({x.shape(0), P, Q, x.shape(3)}, -1.0)};
  auto y = view<4>(out.y), index = view<4>(out.index);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), P, Q, window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t c = 0; c < x.shape(3); ++c) {
                   if (!(x(n, i, j, c) > y(n, p, q, c))) continue;
                   y(n, p, q, c) = x(n, i, j, c);
                   index(n, p, q, c) = static_cast<double>(r * window.kernel_w + s);
                 }
               });
  return out;
}

inline Array max_pool_backward(const Array& index_in, const Array& dy_in, size_t H, size_t W, const WindowAttribute& window) {
  const auto index = view<4>(index_in), dy = view<4>(dy_in);
  Array dx_out = zeros({dy.shape(0), H, W, dy.shape(3)});
  auto dx = view<4>(dx_out);
  for_each_tap(dy.shape(0), H, W, dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t c = 0; c < dy.shape(3); ++c) {
                   if (index(n, p, q, c) == static_cast<double>(r * window.kernel_w + s)) dx(n, i, j, c) += dy(n, p, q, c);
                 }
               });
  return dx_out;
}

inline Array global_pool_forward(const Array& x) { return xt::mean(x, {1, 2}); }

inline Array global_pool_backward(const Array& dy, size_t H, size_t W) {
  const Array each = dy / static_cast<double>(H * W);
  const std::array<size_t, 4> shape = {dy.shape(0), H, W, dy.shape(1)};
  return xt::broadcast(xt::view(each, xt::all(), xt::newaxis(), xt::newaxis(), xt::all()), shape);
}

}  // namespace reprise::ref
