// Matrix products and linear layers in double. The loss head is also a linear layer.
#pragma once

#include "tests/ref/array.h"

namespace reprise::ref {

// Returns a[M,C] * b[C,K].
inline Array product(const Array& a_in, const Array& b_in) {
  const auto a = view<2>(a_in), b = view<2>(b_in);
  Array y_out = zeros({a.shape(0), b.shape(1)});
  auto y = view<2>(y_out);
  for (size_t m = 0; m < a.shape(0); ++m)
    for (size_t c = 0; c < a.shape(1); ++c)
      for (size_t k = 0; k < b.shape(1); ++k) y(m, k) += a(m, c) * b(c, k);
  return y_out;
}
inline Array transposed(const Array& a) { return xt::transpose(a); }

// Returns the weight as [C,K]. It is stored as [C,K] if `input_major`, and otherwise as [K,C].
inline Array weight_by_input(const Array& w, bool input_major) { return input_major ? w : transposed(w); }

inline Array linear_forward(const Array& x, const Array& w, const Array* bias, bool input_major) {
  const Array y = product(x, weight_by_input(w, input_major));
  return bias != nullptr ? Array(y + *bias) : y;
}
inline Array linear_backward_data(const Array& dy, const Array& w, bool input_major) {
  return product(dy, transposed(weight_by_input(w, input_major)));
}
inline Array linear_backward_weight(const Array& x, const Array& dy, bool input_major) {
  return input_major ? product(transposed(x), dy) : product(transposed(dy), x);
}

}  // namespace reprise::ref
