// Which tile a matrix product runs by, into how many parts its depth is split, and the scratch that this takes.
// Here because planner and kernel must agree on it, and the planner has no device: all of it follows from the shape and the size of card
// that the plan is for.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/card_size.h"
#include "cuda/product_math.h"
#include "lib/tensor.h"

namespace reprise {

// C[rows, columns] is a sum over `depth`.
struct ProductShape {
  uint64_t rows, columns, depth;

  constexpr uint64_t outputs() const { return rows * columns; }
};

constexpr uint64_t whole_pieces(uint64_t total, uint64_t size) { return total / size + (total % size != 0); }

// The outputs that a block computes.
struct TileSides {
  uint32_t rows, columns;

  constexpr uint64_t tiles(const ProductShape& s) const { return whole_pieces(s.rows, rows) * whole_pieces(s.columns, columns); }
  constexpr uint64_t computed(const ProductShape& s) const { return tiles(s) * rows * columns; }
};

// Of the product in f32 (tile_product.h). The large tile reads each operand half as often; a product that has only a few of them leaves
// multiprocessors idle and takes the small one.
constexpr uint32_t kSmallSide = 64, kLargeSide = 128;
constexpr TileSides simt_tile(const ProductShape& s, CardSize card) {
  constexpr TileSides kSmall = {kSmallSide, kSmallSide}, kLarge = {kLargeSide, kLargeSide};
  if (s.rows <= kSmallSide || s.columns <= kSmallSide) return kSmall;
  return kLarge.tiles(s) >= multiprocessors_of(card) ? kLarge : kSmall;
}

// Of the product by tensor cores (tile_mma.h; taken where linear_rules.h and conv_rules.h say so: *_uses_mma), which takes operands of bf16 that are
// whole chunks of eight neighbours. All three have four warps of 64 x 64; the one that computes the least beyond the product's edges is taken, the
// square one first, which reads the least.
constexpr TileSides kSquareTile = {128, 128}, kTallTile = {256, 64}, kWideTile = {64, 256};
constexpr TileSides mma_tile(const ProductShape& s) {
  TileSides best = kSquareTile;
  for (const TileSides tile : {kTallTile, kWideTile}) {
    if (tile.computed(s) < best.computed(s)) best = tile;
  }
  return best;
}
// Of operands of f32 that are whole chunks, by their math. On tensor cores the square tile alone: where it computes most beyond the edges, four times
// what the small tile of f32 does, it is still the faster one.
constexpr TileSides chunk_tile(const ProductShape& s, ProductMath math, CardSize card) {
  return math == ProductMath::kF32 ? simt_tile(s, card) : kSquareTile;
}
// Whether they fill chunks of 16 bytes (chunk_source.h).
constexpr bool are_chunks(uint64_t elements, DType stored = DType::kBf16) {
  return elements % (stored == DType::kBf16 ? 8 : 4) == 0;
}

// Where the block of this number has its tile. Bands of some tiles of rows are walked column by column, so that sixteen tiles that follow
// each other, what a small device computes at a time, cover a square: the second cache then serves most of what they read.
struct TileCorner {
  uint64_t row, column;
};
constexpr TileCorner tile_corner(const ProductShape& s, TileSides tile, uint64_t block) {
  uint64_t band_tiles = 1;
  while (band_tiles * band_tiles * tile.rows < 16 * uint64_t{tile.columns}) band_tiles *= 2;
  const uint64_t down = whole_pieces(s.rows, tile.rows), across = whole_pieces(s.columns, tile.columns);
  const uint64_t band = block / (band_tiles * across), inside = block % (band_tiles * across), left = down - band * band_tiles;
  const uint64_t height = left < band_tiles ? left : band_tiles;
  return {(band * band_tiles + inside % height) * tile.rows, inside / height * tile.columns};
}

// Part i of a sum is [i * size, (i + 1) * size) of the depth, the last part shorter; the parts are added up in their order.
struct DepthSplit {
  uint64_t size;
  uint32_t count;
};
// Weight gradients have few outputs and a long sum: enough parts for some blocks on each multiprocessor, none of them short. More blocks on
// a small card, because the last round of them weighs more there, and of the small tile, because its blocks have two warps.
constexpr DepthSplit split_depth(const ProductShape& s, TileSides tile, CardSize card) {
  constexpr uint64_t kLeastDepth = 256, kPiece = 64;
  const bool many = card == CardSize::kSmall || tile.rows * tile.columns <= kSmallSide * kSmallSide;
  const uint64_t enough_blocks = multiprocessors_of(card) * (many ? 8 : 2);
  const uint64_t wanted = whole_pieces(enough_blocks, tile.tiles(s)), possible = s.depth / kLeastDepth;
  const uint64_t parts = wanted < possible ? wanted : possible;
  if (parts <= 1) return {s.depth, 1};
  const uint64_t size = whole_pieces(whole_pieces(s.depth, parts), kPiece) * kPiece;
  return {size, static_cast<uint32_t>(whole_pieces(s.depth, size))};
}
// partials[part][rows][columns]; none where the only part is the sum.
constexpr uint64_t split_scratch_bytes(const ProductShape& s, TileSides tile, CardSize card) {
  const DepthSplit split = split_depth(s, tile, card);
  return split.count == 1 ? 0 : align_up(split.count * s.outputs() * sizeof(float));
}

// Mean and sum of squared deviations of each column over each tile's rows: moments[tile of rows][2][columns].
constexpr uint64_t moments_scratch_bytes(const ProductShape& s, TileSides tile) {
  return align_up(whole_pieces(s.rows, tile.rows) * 2 * s.columns * sizeof(float));
}

// Sums of columns over chunks of rows: partials[chunk][columns].
constexpr DepthSplit split_rows_of_columns(uint64_t rows) {
  constexpr uint64_t kMostChunks = 128, kLeastRows = 64;
  const uint64_t even = whole_pieces(rows, kMostChunks), size = even < kLeastRows ? kLeastRows : even;
  return {size, static_cast<uint32_t>(whole_pieces(rows, size))};
}

}  // namespace reprise
