// Which tile a matrix product runs by, into how many parts its depth is split, and the scratch that this takes.
// Here because planner and kernel must agree on it, and the planner has no device: all of it follows from the shape alone.
#pragma once

#include <cstdint>

#include "lib/tensor.h"

namespace reprise {

// C[rows, columns] is a sum over `depth`.
struct ProductShape {
  uint64_t rows, columns, depth;

  constexpr uint64_t outputs() const { return rows * columns; }
};

constexpr uint64_t whole_pieces(uint64_t total, uint64_t size) { return total / size + (total % size != 0); }

// The side of the square of outputs that a block computes. The large one reads each operand half as often; a product that has only a
// few of them leaves multiprocessors idle and takes the small one.
constexpr uint32_t kSmallSide = 64, kLargeSide = 128;
constexpr uint32_t product_side(const ProductShape& s) {
  constexpr uint64_t kEnoughTiles = 8;  // multiprocessors of the smallest device
  if (s.rows <= kSmallSide || s.columns <= kSmallSide) return kSmallSide;
  return whole_pieces(s.rows, kLargeSide) * whole_pieces(s.columns, kLargeSide) >= kEnoughTiles ? kLargeSide : kSmallSide;
}

// The same by tensor cores (tile_mma.h), which take operands of bf16 whose rows 16-byte copies can take.
constexpr uint32_t kMmaSide = 128;
constexpr bool copies_fit(uint64_t row_elements) { return row_elements % 8 == 0; }

// Part i of a sum is [i * size, (i + 1) * size) of the depth, the last part shorter; the parts are added up in their order.
struct DepthSplit {
  uint64_t size;
  uint32_t count;
};
// Weight gradients have few outputs and a long sum: enough parts for about kEnoughBlocks blocks, none of them short.
constexpr DepthSplit split_depth(const ProductShape& s, uint32_t side) {
  constexpr uint64_t kEnoughBlocks = 64, kLeastDepth = 256, kPiece = 64;
  const uint64_t tiles = whole_pieces(s.rows, side) * whole_pieces(s.columns, side);
  const uint64_t wanted = whole_pieces(kEnoughBlocks, tiles), possible = s.depth / kLeastDepth;
  const uint64_t parts = wanted < possible ? wanted : possible;
  if (parts <= 1) return {s.depth, 1};
  const uint64_t size = whole_pieces(whole_pieces(s.depth, parts), kPiece) * kPiece;
  return {size, static_cast<uint32_t>(whole_pieces(s.depth, size))};
}
// partials[part][rows][columns]; none where the only part is the sum.
constexpr uint64_t split_scratch_bytes(const ProductShape& s, uint32_t side) {
  const DepthSplit split = split_depth(s, side);
  return split.count == 1 ? 0 : align_up(split.count * s.outputs() * sizeof(float));
}

// Mean and sum of squared deviations of each column over each tile's rows: moments[tile of rows][2][columns].
constexpr uint64_t moments_scratch_bytes(const ProductShape& s) {
  return align_up(whole_pieces(s.rows, product_side(s)) * 2 * s.columns * sizeof(float));
}

// Sums of columns over chunks of rows: partials[chunk][columns].
constexpr DepthSplit split_rows_of_columns(uint64_t rows) {
  constexpr uint64_t kMostChunks = 128, kLeastRows = 64;
  const uint64_t even = whole_pieces(rows, kMostChunks), size = even < kLeastRows ? kLeastRows : even;
  return {size, static_cast<uint32_t>(whole_pieces(rows, size))};
}

}  // namespace reprise
