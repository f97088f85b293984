// Matrix products whose operands are multiplied as bf16 and summed in f32: gemm.h over pairs of them.
// products.h chooses between this and widening to f32.
//
// Two bf16 that follow each other along the depth K are one element of 32 bits: panels, rows and blocking are those of gemm.h at
// half the depth, and only the tile knows better. Rows stored as bf16 are such elements as they lie, and so are weights. Weights stored as
// f32 are rounded to bf16, to the nearest even, while they are packed. A `const float*` to pairs is an address alone: packers and the tile
// copy the bits that lie there and read no float.
//
// A tile may want groups, several elements of a line side by side: then lines are copied by groups, no row serves as it lies, and depths are
// rounded up to whole groups, with zeros in both operands.
//
// This is taken by shape alone, on a machine that has a tile whose groups fit the scratch that f32 would take: for any depth where both
// operands lie by depths, for an even one where A lies by rows (an odd row would begin inside a pair). Else bf16 is widened and multiplied as
// f32.
#pragma once

#include <initializer_list>

#include "lib/bf16.h"
#include "lib/cpu/gemm.h"

namespace reprise {

// Pairs along K, in whole groups of the tile.
inline uint64_t pair_depths(const GemmTile& tile, uint64_t K) { return divide_up(divide_up(K, 2), tile.group()) * tile.group(); }
// The machine's tile for pairs along K, and along R behind these; null where it has none for such depths.
inline const GemmTile* find_pair_tile(const KernelContext& context, uint64_t K, uint64_t R = 0) {
  for (const GemmTile* tile : {cpu_machine(context).pairs, cpu_machine(context).small_pairs}) {
    if (tile != nullptr && pair_depths(*tile, K) + pair_depths(*tile, R) <= K + R) return tile;
  }
  return nullptr;
}

// Here and below: depth k is the pair 2k, 2k + 1, and what lies beyond K is zero. `group` is that of the tile's operand.

// Lines are rows of `data`, `pitch` elements apart, an even number. An odd K is followed by a zero in each.
struct PairedLines {
  const Bf16* data;
  uint64_t K, pitch;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
  uint32_t find_runs(RowRun* runs, const PanelRange& range) const;
};

// Lines and depths of `weights`, rounded where they are f32. K is even where the weights lie by lines.
struct PairedWeights {
  WeightPacker weights;
  uint64_t K;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
};

// Lines are the columns of data[K, columns].
struct PairedRows {
  const Bf16* data;
  uint64_t K, columns;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
};

}  // namespace reprise
