// The tile of a matrix product, the split of its depth into parts, and the scratch for the parts.
// Planner and kernels must compute the same values, and the planner has no device. So the values
// depend only on the shape, the types, the math and the size of card.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/card_size.h"
#include "cuda/gemm/product_math.h"
#include "lib/tensor.h"

namespace reprise {

// The shape of a product: C[rows, columns] is a sum over `depth`.
struct ProductShape {
  uint64_t rows, columns, depth;

  constexpr uint64_t outputs() const { return rows * columns; }
};

constexpr uint64_t whole_pieces(uint64_t total, uint64_t size) { return total / size + (total % size != 0); }

// The size of a tile: the rows and columns of outputs that one block computes.
struct TileSides {
  uint32_t rows, columns;

  constexpr uint64_t tiles(const ProductShape& s) const {
    return whole_pieces(s.rows, rows) * whole_pieces(s.columns, columns);
  }
  constexpr uint64_t computed(const ProductShape& s) const { return tiles(s) * rows * columns; }
};

// The tiles of the product in f32 (tile_product.h). The large tile reads each operand half as often
// as the small tile. A product that has too few large tiles for all multiprocessors uses the small
// tile.
constexpr uint32_t kSmallSide = 64, kLargeSide = 128;
constexpr TileSides simt_tile(const ProductShape& s, CardSize card) {
  constexpr TileSides kSmall = {kSmallSide, kSmallSide}, kLarge = {kLargeSide, kLargeSide};
  if (s.rows <= kSmallSide || s.columns <= kSmallSide) return kSmall;
  return kLarge.tiles(s) >= multiprocessors_of(card) ? kLarge : kSmall;
}

// The tiles of the product of bf16 on tensor cores (tile_mma.h); the functions *_uses_mma() select
// this product. Each tile has four warps of 64 x 64 outputs. mma_tile() returns the tile with which
// blocks compute the fewest outputs outside of C. It prefers the square tile if that tile is one of
// several such tiles, because the square tile reads the fewest operands.
constexpr TileSides kSquareTile = {128, 128}, kTallTile = {256, 64}, kWideTile = {64, 256};
constexpr TileSides mma_tile(const ProductShape& s) {
  TileSides best = kSquareTile;
  for (const TileSides tile : {kTallTile, kWideTile}) {
    if (tile.computed(s) < best.computed(s)) best = tile;
  }
  return best;
}
// Returns the tile for operands of f32 in whole chunks. Tensor cores always use the square tile.
// The square tile is faster than the small tile of f32 even if it computes four times as many
// outputs, most of them outside of C.
constexpr TileSides chunk_tile(const ProductShape& s, ProductMath math, CardSize card) {
  return math == ProductMath::kF32 ? simt_tile(s, card) : kSquareTile;
}
// True if `elements` fill whole chunks of 16 bytes (chunk_source.h).
constexpr bool are_chunks(uint64_t elements, DType stored = DType::kBf16) {
  return elements % (stored == DType::kBf16 ? 8 : 4) == 0;
}

// The first row and column of a block's tile. The tiles are divided into bands, each a few rows of
// tiles high. Consecutive blocks go through a band column by column, so that sixteen consecutive
// tiles cover about a square. A small device computes sixteen tiles at a time. The tiles of a
// square share operands, which are then read from the L2 cache.
struct TileCorner {
  uint64_t row, column;
};
constexpr TileCorner tile_corner(const ProductShape& s, TileSides tile, uint64_t block) {
  uint64_t band_tiles = 1;
  while (band_tiles * band_tiles * tile.rows < 16 * uint64_t{tile.columns}) band_tiles *= 2;
  const uint64_t down = whole_pieces(s.rows, tile.rows), across = whole_pieces(s.columns, tile.columns);
  const uint64_t band = block / (band_tiles * across), inside = block % (band_tiles * across),
                 left = down - band * band_tiles;
  const uint64_t height = left < band_tiles ? left : band_tiles;
  return {(band * band_tiles + inside % height) * tile.rows, inside / height * tile.columns};
}

// The split of a sum over the depth into `count` parts. Part i has depths [i * size,
// (i + 1) * size); the last part may be shorter. The parts' sums are added in order.
struct DepthSplit {
  uint64_t size;
  uint32_t count;
};
// Returns the split for a weight's gradient, which has few outputs and a long sum. There are enough
// parts for several blocks on each multiprocessor, but no part is short. A small card gets more
// blocks for each multiprocessor, because a last round with few blocks costs more there. The small
// tile gets more blocks, because each of its blocks has only two warps.
constexpr DepthSplit split_depth(const ProductShape& s, TileSides tile, CardSize card) {
  constexpr uint64_t kMinDepth = 256, kPiece = 64;
  const bool many = card == CardSize::kSmall || tile.rows * tile.columns <= kSmallSide * kSmallSide;
  const uint64_t enough_blocks = multiprocessors_of(card) * (many ? 8 : 2);
  const uint64_t wanted = whole_pieces(enough_blocks, tile.tiles(s)), possible = s.depth / kMinDepth;
  const uint64_t parts = wanted < possible ? wanted : possible;
  if (parts <= 1) return {s.depth, 1};
  const uint64_t size = whole_pieces(whole_pieces(s.depth, parts), kPiece) * kPiece;
  return {size, static_cast<uint32_t>(whole_pieces(s.depth, size))};
}
// Returns the bytes of partials[part][rows][columns]; 0 if there is only one part.
constexpr uint64_t split_scratch_bytes(const ProductShape& s, TileSides tile, CardSize card) {
  const DepthSplit split = split_depth(s, tile, card);
  return split.count == 1 ? 0 : align_up(split.count * s.outputs() * sizeof(float));
}

// Returns the bytes of moments[tile of rows][2][columns]: mean and sum of squared deviations of
// each column over each tile's rows.
constexpr uint64_t moments_scratch_bytes(const ProductShape& s, TileSides tile) {
  return align_up(whole_pieces(s.rows, tile.rows) * 2 * s.columns * sizeof(float));
}

// Splits rows into chunks. The sums of the columns are computed for each chunk first, as
// partials[chunk][columns].
constexpr DepthSplit split_rows_of_columns(uint64_t rows) {
  constexpr uint64_t kMaxChunks = 128, kMinRows = 64;
  const uint64_t even = whole_pieces(rows, kMaxChunks), size = even < kMinRows ? kMinRows : even;
  return {size, static_cast<uint32_t>(whole_pieces(rows, size))};
}

}  // namespace reprise
