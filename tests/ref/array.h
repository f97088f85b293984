// The double-precision arrays of the references, and what a reference promises of a result.
// Here because every reference file speaks of them.
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

// `magnitude` is what the result would be if every term that is added had its absolute value, so that a rounding error of a
// kernel in f32 is a small multiple of 2^-24 * sqrt(terms) * magnitude: each of `terms` additions rounds a partial sum that is
// at most `magnitude`, and roundings of random sign add up as a square root. terms = 0: the result is exact.
// `rounded`: of a sum whose terms have one factor that some kernels round to bf16 before they multiply, the root of the sum of the
// squares of its terms. Such a kernel's error is a small multiple of 2^-8 * rounded more: each term is off by at most 2^-8 of its own,
// and the roundings are of random sign. Empty where no kernel does so.
struct Expected {
  Array value;
  Array magnitude;
  double terms = 0;
  Array rounded = Array(Array::shape_type{0});
};

// The kernel's error may be kSafety times that estimate; the worst of a few million elements lies about five deviations out.
constexpr double kSafety = 4.0;
constexpr double kRounding = 1.0 / 16777216.0;  // 2^-24, the unit roundoff of f32

inline Array zeros(std::initializer_list<size_t> shape) { return Array(Array::shape_type(shape), 0.0); }
inline Array zeros_like(const Array& a) { return Array(a.shape(), 0.0); }
inline Array magnitudes(const Array& a) { return xt::abs(a); }

// A view of static rank, for loops that index elements.
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

// [..., C] as a matrix [M, C].
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
