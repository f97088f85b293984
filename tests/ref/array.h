// The double-precision arrays of the references, and the accuracy that a reference requires of a
// result.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

namespace reprise::ref {

using Array = xt::xarray<double>;

// The expected result of a kernel, with the values from which its tolerance is computed.
// `magnitude`: the result if every added term had its absolute value. A kernel in f32 has a
// rounding error of a small multiple of 2^-24 * sqrt(terms) * magnitude: each of `terms` additions
// rounds a partial sum of at most `magnitude`, and roundings of random sign add up like a square
// root. terms = 0: the result is exact.
// `rounded`: only for sums whose terms have a factor that some kernels round to bf16 before they
// multiply it. It is the root of the sum of the squares of the terms. The error of such a kernel is
// larger by a small multiple of 2^-8 * rounded: each term has a relative error of at most 2^-8,
// with random sign. Empty if no kernel rounds in this way.
struct Expected {
  Array value;
  Array magnitude;
  double terms = 0;
  Array rounded = Array(Array::shape_type{0});
};

// A kernel's error may be kSafety times the estimate in the comment on Expected. Of the errors of a
// few million elements, the largest is about five standard deviations from the mean.
constexpr double kSafety = 4.0;
constexpr double kRounding = 1.0 / 16777216.0;  // 2^-24: unit roundoff of f32

inline Array zeros(std::initializer_list<size_t> shape) { return Array(Array::shape_type(shape), 0.0); }
inline Array zeros_like(const Array& a) { return Array(a.shape(), 0.0); }
inline Array magnitudes(const Array& a) { return xt::abs(a); }

// Returns a view whose rank is known at compile time, for loops that index elements.
template <size_t Rank>
auto view(const Array& a) {
  std::array<size_t, Rank> shape{};
  for (size_t i = 0; i < Rank; ++i) shape[i] = a.shape(i);
  return xt::adapt(a.data(), a.size(), xt::no_ownership(), shape);
}
template <size_t Rank>
auto view(Array& a) {
  std::array<size_t, Rank> shape{};
  for (size_t i = 0; i < Rank; ++i) shape[i] = a.shape(i);
  return xt::adapt(a.data(), a.size(), xt::no_ownership(), shape);
}

// Returns a [..., C] as a matrix [M, C].
inline Array rows(const Array& a) {
  const size_t columns = a.shape(a.dimension() - 1);
  Array matrix = a;
  matrix.reshape({a.size() / columns, columns});
  return matrix;
}
inline Array like(Array a, const Array& shape_of) {
  a.reshape(shape_of.shape());
  return a;
}

}  // namespace reprise::ref
