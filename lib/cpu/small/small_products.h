// Products of rows and weights, and gradients of weights, on a small core, by the tiles of
// small_tile.h. Shared by linear layers and the loss head.
#pragma once

#include <cstring>
#include <type_traits>

#include "lib/cpu/small/linear_small_rules.h"
#include "lib/cpu/small/small_panel.h"
#include "lib/cpu/vector_of.h"

namespace reprise::small {

// Rows of an operand, and the weights by which they are multiplied, indexed by output and depth.
template <typename Stored>
struct Factor {
  const Stored* rows;  // [M, depths]; null for none
  uint32_t depths;
  SmallWeights weights;
  float scale;
};

// Returns `lines` rows from `row` on, as f32: in place, or copied to `space`.
template <typename Stored>
const float* rows_as_f32(const Factor<Stored>& factor, uint64_t row, uint32_t lines, float* space) {
  const Stored* from = factor.rows + row * factor.depths;
  if constexpr (std::is_same_v<Stored, float>) return from;
  for (size_t i = 0; i < size_t{lines} * factor.depths; ++i) space[i] = from[i];
  return space;
}

// Multiplies one row by weights that are read in place, because packing them would take longer.
// Writes the outputs that fill complete tiles of columns, and returns the number of these outputs.
// Returns 0 if the weights are not f32 or are scaled.
template <typename Out>
uint32_t multiply_row(const Factor<float> (&factors)[2], uint32_t outputs, const SmallOutput<Out>& output) {
  for (const Factor<float>& factor : factors) {
    if (factor.depths > 0 && (factor.weights.w.type != DType::kF32 || factor.scale != 1.0f)) return 0;
  }
  const uint32_t whole = outputs / kSmallColumns * kSmallColumns;
  for (uint32_t j = 0; j < whole; j += kSmallColumns) {
    float sums[kSmallColumns] = {};
    for (const Factor<float>& factor : factors) {
      const float* w = factor.weights.w.f32() + static_cast<ptrdiff_t>(j) * factor.weights.of_output;
      const SmallPart part = {factor.rows, w};
      if (factor.depths == 0) continue;
      if (factor.weights.of_depth == 1) add_by_columns(sums, factor.rows, w, factor.weights.of_output, factor.depths);
      else add_by_depths(sums, 1, {&part, 1, factor.depths}, 1, factor.weights.of_depth);
    }
    SmallOutput<Out> to = output;
    to.data += j;
    if (to.bias != nullptr) to.bias += j;
    to.put(sums, 1, kSmallColumns);
  }
  return whole;
}

// Computes output[M, outputs] (+)= the sum of both factors' products.
template <typename Stored, typename Out>
void multiply(const Factor<Stored> (&factors)[2], uint64_t M, uint32_t outputs, const SmallOutput<Out>& output,
              float* scratch) {
  const uint32_t depth = factors[0].depths + factors[1].depths, packed = small_panels(depth, outputs) * kSmallColumns;
  float *const space = scratch, *const panels = scratch + (kStoredAs<Stored> == DType::kF32
                                                              ? 0
                                                              : small_columns(uint64_t{kSmallLines} * depth));
  uint32_t written = 0;
  if constexpr (std::is_same_v<Stored, float>) {
    if (M == 1) written = multiply_row(factors, outputs, output);
  }
  for (uint32_t first = written; first < outputs; first += packed) {
    const uint32_t count = static_cast<uint32_t>(smaller(packed, outputs - first));
    float* panel = panels;
    for (uint32_t j = 0; j < count; j += kSmallColumns) {
      for (const Factor<Stored>& factor : factors) {
        SmallWeights w = factor.weights;
        w.first = static_cast<ptrdiff_t>(first + j) * w.of_output;
        if (factor.depths > 0) pack_small_panel(panel, w, count - j, factor.depths, factor.scale);
        panel += factor.depths * kSmallColumns;
      }
    }
    for (uint64_t row = 0; row < M; row += kSmallLines) {
      const uint32_t lines = static_cast<uint32_t>(smaller(kSmallLines, M - row));
      const float* a[2] = {rows_as_f32(factors[0], row, lines, space), nullptr};
      if (factors[1].depths > 0) a[1] = rows_as_f32(factors[1], row, lines, space + kSmallLines * factors[0].depths);
      const float* b = panels;
      for (uint32_t j = 0; j < count; j += kSmallColumns) {
        float sums[kSmallLines * kSmallColumns] = {};
        for (int i = 0; i < 2; ++i) {
          const uint32_t depths = factors[i].depths;
          const SmallPart part = {a[i], b};
          if (depths > 0) add_by_lines(sums, lines, {&part, 1, depths}, static_cast<ptrdiff_t>(depths));
          b += depths * kSmallColumns;
        }
        SmallOutput<Out> to = output;
        to.data += row * static_cast<uint64_t>(output.line) + first + j;
        if (to.bias != nullptr) to.bias += first + j;
        to.put(sums, lines, static_cast<uint32_t>(smaller(kSmallColumns, count - j)));
      }
    }
  }
}

// Copies columns [first, first + count) of rows [row, row + rows) of from[., line] to rows of
// `width` floats, padded with zeros.
template <typename Stored>
void copy_columns(float* to, uint32_t width, const Stored* from, uint32_t line, uint64_t row, uint32_t rows,
                  uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < rows; ++i, to += width) {
    for (uint32_t j = 0; j < width; ++j)
      to[j] = j < count ? static_cast<float>(from[(row + i) * line + first + j]) : 0.0f;
  }
}

// Computes to[columns] (+)= factor b, four columns at a time if there are vectors. Rounds products
// before they are added.
template <bool kAccumulate, typename B>
void put_products(float* to, float factor, const B* b, uint32_t columns) {
  if constexpr (kHasVectors) {
    typename VectorOf<4>::type column, sum = {};
    for (; columns >= 4; columns -= 4, to += 4, b += 4) {
      read_vector<4>(column, b);
      if constexpr (kAccumulate) read_vector<4>(sum, to);
      write_vector<4>(to, kAccumulate ? sum + factor * column : factor * column);
    }
  }
  if (columns == 0) return;
  do {  // compiled for size, a loop that tests first has six instructions, this one five
    const float product = factor * static_cast<float>(*b++);
    *to = kAccumulate ? *to + product : product;
    ++to;
  } while (--columns > 0);
}

// Computes dw[lines, columns] (+)= a^T b of a[M, lines] and b[M, columns], eight columns of all
// lines at a time.
template <typename A, typename B>
void add_gradient(float* dw, bool accumulate, const A* a, uint32_t lines, const B* b, uint32_t columns, uint64_t M,
                  float* scratch) {
  if (M == 1) {  // an outer product: there is nothing to sum
    for (uint32_t i = 0; i < lines; ++i, dw += columns) {
      if (accumulate) put_products<true>(dw, a[i], b, columns);
      else put_products<false>(dw, a[i], b, columns);
    }
    return;
  }
  float *const sums = scratch, *const of_b = sums + divide_up(lines, kSmallLines) * kSmallLines * kSmallColumns,
        *const of_a = of_b + kSmallRowsOfGradient * kSmallColumns;
  for (uint32_t j = 0; j < columns; j += kSmallColumns) {
    const uint32_t width = static_cast<uint32_t>(smaller(kSmallColumns, columns - j));
    std::memset(sums, 0, static_cast<size_t>(of_b - sums) * sizeof *sums);
    for (uint64_t row = 0; row < M; row += kSmallRowsOfGradient) {
      const uint32_t rows = static_cast<uint32_t>(smaller(kSmallRowsOfGradient, M - row));
      copy_columns(of_b, kSmallColumns, b, columns, row, rows, j, width);
      for (uint32_t i = 0; i < lines; i += kSmallLines) {
        const uint32_t count = static_cast<uint32_t>(smaller(kSmallLines, lines - i));
        SmallPart part = {of_a, of_b};
        ptrdiff_t step = kSmallLines;
        if constexpr (std::is_same_v<A, float>) part.a = a + row * lines + i, step = static_cast<ptrdiff_t>(lines);
        else copy_columns(of_a, kSmallLines, a, lines, row, rows, i, count);
        add_by_depths(sums + i * kSmallColumns, count, {&part, 1, rows}, step, kSmallColumns);
      }
    }
    SmallOutput<float>{dw + j, static_cast<ptrdiff_t>(columns), nullptr, accumulate}.put(sums, lines, width);
  }
}

// Returns the strides of weights [outputs, depths], or of their transpose.
inline SmallWeights weights_of(const Weight& w, uint32_t outputs, uint32_t depths, bool transposed) {
  return transposed ? SmallWeights{w, 0, 1, static_cast<ptrdiff_t>(outputs)}
                    : SmallWeights{w, 0, static_cast<ptrdiff_t>(depths), 1};
}

}  // namespace reprise::small
