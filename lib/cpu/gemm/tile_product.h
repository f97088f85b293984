// Computes C (+)= A B for tiles that are in the first caches. Elements of A are broadcast to
// vectors and have any strides, B is in panels of columns, and sums are in registers. Attention
// uses this product, because its tiles are created in a cache and used at once. The loop nest of
// gemm.h is for operands in memory.
//
//               B's panel: kPanelColumns wide, as deep as the product
//              +--------+
//              |        |   stays in the first-level cache ...
//              +--------+
//   A    +-+   +--------+
//  rows  | |   | C rows |   ... while all rows of A and C are processed, kTileRows at a time
//        +-+   +--------+
//
// An element of A and B is a float, or two bf16 that follow each other along the depth
// (bf16_pairs.h). A pointer to floats is then only an address.
#pragma once

#include <cstdint>

#include "lib/cpu/vector_of.h"

namespace reprise {

// The sums of a tile, kTileRows x 2 vectors, and the operands must fit in the registers: 32 with
// AVX-512 and on AArch64, otherwise 16.
#if defined(__aarch64__)
template <int kLanes>
inline constexpr uint32_t kTileRows = 8;
#else
template <int kLanes>
inline constexpr uint32_t kTileRows = kLanes == 16 ? 8 : 4;
#endif
template <int kLanes>
inline constexpr uint32_t kPanelColumns = 2 * kLanes;

// An operand A: element (i, k) is data[i * row + k * column].
struct BroadcastOperand {
  const float* data;
  uint64_t row, column;
};
// An operand B: columns [p * kPanelColumns, (p + 1) * kPanelColumns) of row k are at data + p *
// panel + k * row.
struct PanelOperand {
  const float* data;
  uint64_t panel, row;
};
struct RowOutput {
  float* data;
  uint64_t stride;
  bool accumulate;
};

enum class TileElement : uint8_t { kFloat, kPair };

#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)
// Adds both products of each lane's pair to `sum`, by AVX512-BF16. Written in assembly, because the
// loops of a level are compiled for AVX-512 without AVX512-BF16. clang accepts only operands as
// wide as the function's own level allows. So this function has the level of its callers, into
// which it is inlined.
__attribute__((REPRISE_AVX512)) inline void add_pairs(VectorOf<16>::type& sum, const VectorOf<16>::type& row,
                                                      const float* factor) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(row), "m"(*reinterpret_cast<const char(*)[4]>(factor)));
}
#endif

// Adds row * factor to `sum`, lane by lane. For kPair, adds both products of each lane's pair.
template <TileElement kElement, int kLanes>
REPRISE_INLINE void add_product(typename VectorOf<kLanes>::type& sum, const typename VectorOf<kLanes>::type& row,
                                const float* factor) {
  if constexpr (kElement == TileElement::kFloat) {
    sum = sum + row * *factor;
  } else if constexpr (kLanes == 1) {
    Bf16 a[2], b[2];
    std::memcpy(a, factor, sizeof a);
    std::memcpy(b, &row, sizeof b);
    sum += float{a[0]} * float{b[0]};
    sum += float{a[1]} * float{b[1]};
  } else {
#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)
    static_assert(kLanes == 16, "pairs are multiplied by AVX512-BF16");
    add_pairs(sum, row, factor);
#endif
  }
}

// Computes kRows x (kVectors * kLanes) elements of C in registers. Rows of B are `b_row` floats
// apart.
template <TileElement kElement, int kLanes, int kRows, int kVectors>
REPRISE_INLINE void register_tile(const RowOutput& c, const BroadcastOperand& a, const float* b, uint64_t b_row,
                                  uint32_t depth) {
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
    for (int j = 0; j < kVectors; ++j) read_vector<kLanes>(row[j], b + k * b_row + j * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float* factor = a.data + static_cast<uint64_t>(i) * a.row + k * a.column;
      for (int j = 0; j < kVectors; ++j) add_product<kElement, kLanes>(sum[i][j], row[j], factor);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      write_vector<kLanes>(c.data + static_cast<uint64_t>(i) * c.stride + j * kLanes, sum[i][j]);
    }
  }
}

// Computes all rows of kVectors * kLanes columns of C.
template <TileElement kElement, int kLanes, int kVectors>
REPRISE_INLINE void product_columns(const RowOutput& c, const BroadcastOperand& a, const float* b, uint64_t b_row,
                                    uint32_t rows, uint32_t depth) {
  constexpr uint32_t kRows = kTileRows<kLanes>;
  uint32_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    register_tile<kElement, kLanes, kRows, kVectors>({c.data + i * c.stride, c.stride, c.accumulate},
                                                     {a.data + i * a.row, a.row, a.column}, b, b_row, depth);
  }
  for (; i < rows; ++i) {
    register_tile<kElement, kLanes, 1, kVectors>({c.data + i * c.stride, c.stride, c.accumulate},
                                                 {a.data + i * a.row, a.row, a.column}, b, b_row, depth);
  }
}

template <int kLanes, TileElement kElement = TileElement::kFloat>
REPRISE_INLINE void tile_product(const RowOutput& c, const BroadcastOperand& a, const PanelOperand& b, uint32_t rows,
                                 uint32_t columns, uint32_t depth) {
  constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  for (uint32_t j = 0; j < columns; j += kPanel) {
    const RowOutput part{c.data + j, c.stride, c.accumulate};
    const float* panel = b.data + j / kPanel * b.panel;
    if (j + kPanel <= columns) {
      product_columns<kElement, kLanes, 2>(part, a, panel, b.row, rows, depth);
      continue;
    }
    uint32_t done = 0;
    if (j + kLanes <= columns) {
      product_columns<kElement, kLanes, 1>(part, a, panel, b.row, rows, depth);
      done = kLanes;
    }
    for (; j + done < columns; ++done) {
      product_columns<kElement, 1, 1>({part.data + done, c.stride, c.accumulate}, a, panel + done, b.row, rows, depth);
    }
  }
}

}  // namespace reprise
