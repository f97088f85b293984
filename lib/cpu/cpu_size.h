// Which cores a table of CPU kernels is for, and the blocks that each size of core works in. Both tables hold the same kernels.
// Here because blocks decide where sums are cut, and so bits, and how much scratch and stack a call takes: they must follow from the backend's
// name, so that a plan needs no processor.
#pragma once

#include "lib/cpu/gemm_tile.h"

namespace reprise {

enum class CpuSize : uint8_t { kSmall, kLarge };  // a microcontroller's, with kilobytes of stack; any that runs an operating system

struct CpuBlocks {
  uint32_t depth;            // of a packed panel: where a sum over K is cut
  uint32_t tile;             // rows, and columns, of a register tile at most
  uint32_t slack;            // floats past the end of a panel that a tile may read, and never uses
  uint32_t columns;          // of B that are packed at a time, at most; a machine may take fewer
  uint32_t narrow_columns;   // the same for a C stored as bf16, whose whole K is packed, in about narrow_floats
  uint64_t narrow_floats;
  uint32_t split_columns;    // the same for each part of a product that is split along K
  uint32_t splits;           // parts of a split product
  uint64_t split_outputs;    // C is split along K when it has at most this many elements: too few tiles for workers
  uint32_t attention_tile;   // queries, and keys, of a tile of scores
};
inline constexpr CpuBlocks kSmallBlocks = {.depth = 64, .tile = 8, .slack = 16, .columns = 64, .narrow_columns = 32, .narrow_floats = 8192,
                                           .split_columns = 16, .splits = 2, .split_outputs = 4096, .attention_tile = 16};
inline constexpr CpuBlocks kLargeBlocks = {.depth = kKc, .tile = kMaxMr, .slack = kPanelSlack, .columns = 1024, .narrow_columns = 256,
                                           .narrow_floats = 524288, .split_columns = 128, .splits = 8, .split_outputs = 65536,
                                           .attention_tile = 64};

// What kernels count on without asking.
constexpr bool blocks_make_sense(const CpuBlocks& b) {
  constexpr uint32_t kWidestGroup = 16, kWidestPanel = 32;  // of a tile for pairs (bf16_pairs.h); of attention's products (tile_product.h)
  const bool whole_tiles = b.columns % b.tile == 0 && b.narrow_columns % b.tile == 0 && b.split_columns % b.tile == 0;
  const bool in_range = b.tile <= kMaxMr && b.depth <= kKc && b.slack <= kPanelSlack && b.slack % 16 == 0 && b.splits > 0;
  return whole_tiles && in_range && b.depth % kWidestGroup == 0 && b.attention_tile % 16 == 0 && b.attention_tile / 2 <= kWidestPanel;
}
static_assert(kMaxMr == kMaxNr && kMaxRowTile <= kMaxMr, "a panel of A and one of B take the same room");
static_assert(blocks_make_sense(kSmallBlocks) && blocks_make_sense(kLargeBlocks));

constexpr const CpuBlocks& blocks_of(CpuSize size) { return size == CpuSize::kSmall ? kSmallBlocks : kLargeBlocks; }

}  // namespace reprise
