// Matrix products whose operands are multiplied as bf16 and summed in f32. The loops are those of
// gemm.h, over pairs of bf16. products.h decides whether to use pairs or to widen bf16 to f32.
//
// Two bf16 that follow each other along the depth K are one element of 32 bits. Panels, rows and
// blocking are those of gemm.h at half the depth; only the tile differs. Rows and weights stored as
// bf16 already consist of such elements. Weights stored as f32 are rounded to bf16, to nearest
// even, while they are packed. A `const float*` to pairs is only an address: packers and tiles copy
// its bits and never read a float.
//
// A "line" is a row of A or a column of B. A tile may need groups: several successive elements of a
// line, contiguous in the panel. gemm() then copies lines group by group and reads no row in place.
// The depths of both operands are padded with zeros to whole groups.
//
// Shape and machine decide whether pairs are used. The tile's groups must fit the scratch of the
// f32 product. K may be odd if the operands are depth-major or their lines are copied. K must be
// even if rows are read in place, because every second row of odd length would begin inside a pair.
// All other products widen bf16 and multiply in f32.
#pragma once

#include <initializer_list>

#include "lib/bf16.h"
#include "lib/cpu/gemm/gemm.h"

namespace reprise {

// Returns the number of pairs along K, rounded up to whole groups of the tile.
inline uint64_t pair_depths(const GemmTile& tile, uint64_t K) {
  return divide_up(divide_up(K, 2), tile.group()) * tile.group();
}
// Returns the machine's tile for a product over K elements, joined along the depth by R more
// (JoinedPacker of gemm.h). Returns null if the machine has no such tile, or if whole groups of
// pairs need more space than K + R floats.
inline const GemmTile* find_pair_tile(const KernelContext& context, uint64_t K, uint64_t R = 0) {
  for (const GemmTile* tile : {cpu_machine(context).pairs, cpu_machine(context).small_pairs}) {
    if (tile != nullptr && pair_depths(*tile, K) + pair_depths(*tile, R) <= K + R) return tile;
  }
  return nullptr;
}

namespace pairs_detail {

// Returns how many of the range's depths are within a line of K elements; each depth is one pair.
inline uint32_t depths_within(const PanelRange& range, uint64_t K) {
  const uint64_t depths = divide_up(K, 2);
  return static_cast<uint32_t>(range.k0 >= depths ? 0 : smaller(range.kc, depths - range.k0));
}
// Returns how many of a line's K elements are in the range's depths. If K is odd, the line's last
// pair has only one element.
inline uint64_t elements_within(const PanelRange& range, uint64_t K) {
  return smaller(2 * uint64_t{depths_within(range, K)}, K - smaller(K, 2 * range.k0));
}

// Writes line i of a panel in groups: the line's `depths` pairs, then zeros.
void put_line(float* panel, const PanelRange& range, uint32_t group, uint32_t i, const Bf16* line, uint32_t depths);
// Packs a panel of lines without groups. A null line counts as zeros.
void pack_lines_of_pairs(float* panel, const PanelRange& range, const Bf16* const* lines, uint32_t depths);

// Packs a panel of lines of `depths` pairs each. Calls line_of(i) in order of i. If `group` is 1,
// each returned line must stay valid until the function returns.
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

// Converts at most kMaxGroup depths, which are packed without groups in `depths`, to a panel in
// groups.
void put_depths(float* panel, const PanelRange& range, uint32_t group, const float* depths);

// Packs a panel in groups. by_depths(panel, range) packs the same panel without groups.
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

// Packs the range's depths of a matrix of K rows, without groups. `first` is the range's first
// element; rows are `stride` elements apart.
template <typename Stored>
void pack_rows(float* panel, const PanelRange& range, const Stored* first, int64_t stride, uint64_t K);

}  // namespace pairs_detail

// For the operands below: depth k is the pair of elements 2k and 2k + 1; elements from K on are
// zero. `group` is the tile's group_of_a or group_of_b, depending on the operand's side.

// An operand whose lines are rows of `data`, `pitch` elements apart (an even number). If K is odd,
// a zero must follow each row in memory.
struct PairedLines {
  const Bf16* data;
  uint64_t K, pitch;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
  uint32_t find_runs(RowRun* runs, const PanelRange& range) const;
};

// An operand with the lines and depths of `weights`; f32 weights are rounded.
struct PairedWeights {
  WeightPacker weights;
  uint64_t K;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
};

// An operand whose lines are the columns of data[K, columns].
struct PairedRows {
  const Bf16* data;
  uint64_t K, columns;
  uint32_t group;
  void operator()(float* panel, const PanelRange& range) const;
};

// Computes gemm() of operands in pairs; `shape` counts elements. Not inlined, so that the stack
// frames of its callers stay small: small cores run these callers too, but never multiply pairs.
template <typename PackA, typename PackB, typename Output>
[[gnu::noinline]] void multiply_pairs(const KernelContext& context, const GemmTile& tile, const GemmShape& shape,
                                      const PackA& a, const PackB& b, const Output& output, bool accumulate,
                                      void* scratch) {
  gemm(context, {shape.M, shape.N, pair_depths(tile, shape.K)}, a, b, output, accumulate, scratch, &tile);
}

}  // namespace reprise
