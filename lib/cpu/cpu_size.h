// The sizes of core for which there is a table of CPU kernels, and the blocks of each size. Both
// tables have the same kernels. Blocks decide where sums are cut, and so bits, and how much scratch
// and stack a call needs. They follow from the backend's name, so that planning needs no processor.
#pragma once

#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise {

// kSmall: a microcontroller with kilobytes of stack; kLarge: any core that runs an operating
// system.
enum class CpuSize : uint8_t { kSmall, kLarge };

struct CpuBlocks {
  uint32_t depth;            // maximum depths of a piece: where a sum over K is cut
  uint32_t tile;             // maximum rows, and columns, of a register tile
  uint32_t slack;            // floats past the end of a panel that a tile may read, and never uses
  uint32_t columns;          // maximum columns of B packed at a time; a machine may use fewer
  uint32_t narrow_columns;   // as `columns`, for a C stored as bf16: a block then has all of K
  uint64_t narrow_floats;
  uint32_t split_columns;    // as `columns`, for a part of a product that is split along K
  uint32_t splits;           // maximum parts into which a product is split along K
  uint64_t split_outputs;    // C is split along K if it has at most this many elements: too few tiles for workers
  uint32_t attention_tile;   // queries, and keys, in a tile of scores
};
inline constexpr CpuBlocks kSmallBlocks = {.depth = 64,
                                           .tile = 8,
                                           .slack = 16,
                                           .columns = 64,
                                           .narrow_columns = 32,
                                           .narrow_floats = 8192,
                                           .split_columns = 16,
                                           .splits = 2,
                                           .split_outputs = 4096,
                                           .attention_tile = 16};
inline constexpr CpuBlocks kLargeBlocks = {.depth = kKc,
                                           .tile = kMaxMr,
                                           .slack = kPanelSlack,
                                           .columns = 1024,
                                           .narrow_columns = 256,
                                           .narrow_floats = 524288,
                                           .split_columns = 128,
                                           .splits = 8,
                                           .split_outputs = 65536,
                                           .attention_tile = 64};

// True if the blocks have the properties on which kernels rely.
constexpr bool blocks_make_sense(const CpuBlocks& b) {
  // Widest group of a tile for pairs (bf16_pairs.h), and widest panel of attention's products
  // (tile_product.h).
  constexpr uint32_t kWidestGroup = 16, kWidestPanel = 32;
  const bool whole_tiles = b.columns % b.tile == 0 && b.narrow_columns % b.tile == 0 && b.split_columns % b.tile == 0;
  const bool in_range =
      b.tile <= kMaxMr && b.depth <= kKc && b.slack <= kPanelSlack && b.slack % 16 == 0 && b.splits > 0;
  return whole_tiles && in_range && b.depth % kWidestGroup == 0 && b.attention_tile % 16 == 0 &&
         b.attention_tile / 2 <= kWidestPanel;
}
static_assert(kMaxMr == kMaxNr && kMaxRowTile <= kMaxMr, "a panel of A and one of B have the same size");
static_assert(blocks_make_sense(kSmallBlocks) && blocks_make_sense(kLargeBlocks));

constexpr const CpuBlocks& blocks_of(CpuSize size) { return size == CpuSize::kSmall ? kSmallBlocks : kLargeBlocks; }

}  // namespace reprise
