// C (+)= A B for tiles that lie in the first caches: A by broadcast at any stride, B and C with contiguous rows.
// Here for attention, whose operands are rows of a wider matrix and too small for the packing of gemm.h to pay.
#pragma once

#include <cstdint>

#include "lib/cpu/vector_of.h"

namespace reprise {

// Element (i, k) at data[i * row + k * column].
struct BroadcastOperand {
  const float* data;
  uint64_t row, column;
};
// Row k at data + k * stride.
struct RowOperand {
  const float* data;
  uint64_t stride;
};
struct RowOutput {
  float* data;
  uint64_t stride;
  bool accumulate;
};

// kRows x (kVectors * kLanes) of C in registers.
template <int kLanes, int kRows, int kVectors>
REPRISE_INLINE void register_tile(const RowOutput& c, const BroadcastOperand& a, const RowOperand& b, uint32_t depth) {
  using Vector = typename VectorOf<kLanes>::type;
  Vector sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = Vector{};
      if (c.accumulate) read_vector<kLanes>(sum[i][j], c.data + static_cast<uint64_t>(i) * c.stride + j * kLanes);
    }
  }
  for (uint32_t k = 0; k < depth; ++k) {
    Vector row[kVectors];
    for (int j = 0; j < kVectors; ++j) read_vector<kLanes>(row[j], b.data + k * b.stride + j * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float factor = a.data[static_cast<uint64_t>(i) * a.row + k * a.column];
      for (int j = 0; j < kVectors; ++j) sum[i][j] = sum[i][j] + row[j] * factor;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      write_vector<kLanes>(c.data + static_cast<uint64_t>(i) * c.stride + j * kLanes, sum[i][j]);
    }
  }
}

template <int kLanes, int kRows>
REPRISE_INLINE void product_strip(const RowOutput& c, const BroadcastOperand& a, const RowOperand& b, uint32_t columns,
                                  uint32_t depth) {
  uint32_t j = 0;
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
    register_tile<kLanes, kRows, 2>({c.data + j, c.stride, c.accumulate}, a, {b.data + j, b.stride}, depth);
  }
  for (; j + kLanes <= columns; j += kLanes) {
    register_tile<kLanes, kRows, 1>({c.data + j, c.stride, c.accumulate}, a, {b.data + j, b.stride}, depth);
  }
  for (; j < columns; ++j) {
    register_tile<1, kRows, 1>({c.data + j, c.stride, c.accumulate}, a, {b.data + j, b.stride}, depth);
  }
}

template <int kLanes>
REPRISE_INLINE void tile_product(const RowOutput& c, const BroadcastOperand& a, const RowOperand& b, uint32_t rows,
                                 uint32_t columns, uint32_t depth) {
  constexpr uint32_t kRows = 4;
  uint32_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    product_strip<kLanes, kRows>({c.data + i * c.stride, c.stride, c.accumulate}, {a.data + i * a.row, a.row, a.column},
                                 b, columns, depth);
  }
  for (; i < rows; ++i) {
    product_strip<kLanes, 1>({c.data + i * c.stride, c.stride, c.accumulate}, {a.data + i * a.row, a.row, a.column}, b,
                             columns, depth);
  }
}

}  // namespace reprise
