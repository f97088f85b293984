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
// This is taken by shape and machine, where a tile's groups fit the scratch that f32 would take: for any depth where operands lie by depths or
// their lines are copied, for an even one where rows stored as bf16 serve as they lie (an odd row would begin inside a pair). Else bf16 is widened
// and multiplied as f32.
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

namespace pairs_detail {

// How many of the range's depths are pairs of a line of K.
inline uint32_t depths_within(const PanelRange& range, uint64_t K) {
  const uint64_t depths = divide_up(K, 2);
  return static_cast<uint32_t>(range.k0 >= depths ? 0 : smaller(range.kc, depths - range.k0));
}
// How many elements of a line these are.
inline uint64_t elements_within(const PanelRange& range, uint64_t K) { return smaller(2 * uint64_t{depths_within(range, K)}, K - smaller(K, 2 * range.k0)); }

// Line i of a panel in groups: `depths` pairs of it, then zeros.
void put_line(float* panel, const PanelRange& range, uint32_t group, uint32_t i, const Bf16* line, uint32_t depths);
// A panel of lines without groups; those that are not there are null.
void pack_lines_of_pairs(float* panel, const PanelRange& range, const Bf16* const* lines, uint32_t depths);

// A panel of lines, each of so many pairs. Asks for line_of(i) in order; without groups all of them must stay until the last is there.
template <typename LineOf>
void pack_paired_lines(float* panel, const PanelRange& range, uint32_t group, uint32_t depths, const LineOf& line_of) {
  const uint32_t count = depths > 0 ? range.count : 0;
  const Bf16* lines[kMaxMr] = {};
  for (uint32_t i = 0; i < range.width; ++i) {
    if (i < count) lines[i] = line_of(i);
    if (group > 1) put_line(panel, range, group, i, lines[i], i < count ? depths : 0);
  }
  if (group == 1) pack_lines_of_pairs(panel, range, lines, depths);
}

constexpr uint32_t kMaxGroup = 16;

// The range's depths in groups, at most kMaxGroup of them, which stand at `depths` without.
void put_depths(float* panel, const PanelRange& range, uint32_t group, const float* depths);

// What by_depths(panel, range) writes without groups, in groups.
template <typename ByDepths>
void group_depths(float* panel, const PanelRange& range, uint32_t group, const ByDepths& by_depths) {
  if (group == 1) return by_depths(panel, range);
  alignas(64) float depths[kMaxGroup * kMaxMr];
  PanelRange part = range;
  for (uint32_t k = 0; k < range.kc; k += part.kc) {
    part.k0 = range.k0 + k;
    part.kc = static_cast<uint32_t>(smaller(kMaxGroup, range.kc - k));
    by_depths(depths, part);
    put_depths(panel + uint64_t{k} * range.width, part, group, depths);
  }
}

// The range's depths of K rows of elements, without groups. `first` is the range's first element, rows are `stride` elements apart.
template <typename Stored>
void pack_rows(float* panel, const PanelRange& range, const Stored* first, int64_t stride, uint64_t K);

}  // namespace pairs_detail

// Here and below: depth k is the pair 2k, 2k + 1, and what lies beyond K is zero. `group` is that of the tile's operand.

// Lines are rows of `data`, `pitch` elements apart, an even number. An odd K is followed by a zero in each.
struct PairedLines {
  const Bf16* data;
  uint64_t K, pitch;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
  uint32_t find_runs(RowRun* runs, const PanelRange& range) const;
};

// Lines and depths of `weights`, rounded where they are f32.
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

// gemm() of operands in pairs; the shape counts elements. A function of its own frame: small cores, which multiply no pairs, have no room for it.
template <typename PackA, typename PackB, typename Output>
[[gnu::noinline]] void multiply_pairs(const KernelContext& context, const GemmTile& tile, const GemmShape& shape, const PackA& a,
                                      const PackB& b, const Output& output, bool accumulate, void* scratch) {
  gemm(context, {shape.M, shape.N, pair_depths(tile, shape.K)}, a, b, output, accumulate, scratch, &tile);
}

}  // namespace reprise
