// Linear layers and embeddings in double.
// Here as the oracle of linear and embedding.
// It must not know how kernels block, pack or thread.
#pragma once

#include "tests/ref/array.h"

namespace reprise::ref {

// a[M,C] * b[C,K].
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

// The weight as [C,K], however it is stored.
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

// `positions` may be null.
inline Array embedding_forward(const Array& tokens_in, const Array& table_in, const Array* positions) {
  const auto tokens = view<2>(tokens_in), table = view<2>(table_in);
  Array y_out = zeros({tokens.shape(0), tokens.shape(1), table.shape(1)});
  auto y = view<3>(y_out);
  for (size_t b = 0; b < y.shape(0); ++b)
    for (size_t t = 0; t < y.shape(1); ++t)
      for (size_t c = 0; c < y.shape(2); ++c) {
        y(b, t, c) = table(static_cast<size_t>(tokens(b, t)), c) + (positions != nullptr ? (*positions)(t, c) : 0.0);
      }
  return y_out;
}
inline Array embedding_backward_table(const Array& tokens_in, const Array& dy_in, size_t V) {
  const auto tokens = view<2>(tokens_in);
  const auto dy = view<3>(dy_in);
  Array dtable_out = zeros({V, dy.shape(2)});
  auto dtable = view<2>(dtable_out);
  for (size_t b = 0; b < dy.shape(0); ++b)
    for (size_t t = 0; t < dy.shape(1); ++t)
      for (size_t c = 0; c < dy.shape(2); ++c) dtable(static_cast<size_t>(tokens(b, t)), c) += dy(b, t, c);
  return dtable_out;
}
inline Array embedding_backward_positions(const Array& dy, size_t L) {
  Array dpositions = zeros({L, dy.shape(2)});
  xt::view(dpositions, xt::range(size_t{0}, dy.shape(1)), xt::all()) = xt::sum(dy, {0});
  return dpositions;
}

}  // namespace reprise::ref
