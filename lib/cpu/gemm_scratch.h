// Scratch and stack bytes of a matrix product: planner, checker and kernels agree on them at compile time, with no processor at hand. They follow
// from the blocks of the core's size (cpu_size.h); of the micro-kernel in use only the maxima of its size are known.
#pragma once

#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/stack_room.h"
#include "lib/tensor.h"

namespace reprise {

// Floats that one packed piece of B[K,N] takes, at most `columns` wide.
constexpr uint64_t gemm_block_floats(uint64_t N, uint64_t K, uint32_t columns, const CpuBlocks& blocks) {
  return smaller(K, blocks.depth) * smaller(columns, N + blocks.tile - 1) + blocks.slack;
}
// Depths that are packed together, in pieces of at most blocks.depth, where B is narrower than the `columns` of a block: C then stays in a cache
// from piece to piece.
constexpr uint32_t gemm_depth_pieces(uint64_t N, uint32_t columns, const CpuBlocks& blocks) {
  return static_cast<uint32_t>(larger(1, columns / (N + blocks.tile - 1)));
}
constexpr uint32_t gemm_narrow_columns(uint64_t K, const CpuBlocks& blocks) {
  const uint64_t tile = blocks.tile;
  return static_cast<uint32_t>(smaller(blocks.narrow_columns, larger(tile, blocks.narrow_floats / larger(K, 1) / tile * tile)));
}
constexpr uint64_t gemm_scratch_bytes(uint64_t N, uint64_t K, DType output = DType::kF32, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  if (output == DType::kBf16) return align_up(4 * (K * smaller(gemm_narrow_columns(K, b), N + b.tile - 1) + b.slack));
  const uint64_t depths = smaller(K, uint64_t{gemm_depth_pieces(N, b.columns, b)} * b.depth);
  return align_up(4 * (depths * smaller(b.columns, N + b.tile - 1) + b.slack));
}
// Enough for every product of at most N columns: a narrower one may pack more depths together.
constexpr uint64_t gemm_scratch_bytes_up_to(uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  return align_up(4 * (smaller(K * smaller(b.columns, N + b.tile - 1), uint64_t{b.depth} * b.columns) + b.slack));
}

// Parts of C[M,N] = A[M,K] B[K,N] along K; 1 is no split.
constexpr uint32_t gemm_splits(uint64_t M, uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  if (M * N > b.split_outputs) return 1;
  return static_cast<uint32_t>(smaller(b.splits, larger(1, K / b.depth)));
}
// A part owns a partial C and, behind it and aligned to 64 bytes, a packed block.
constexpr uint64_t gemm_split_part_floats(uint64_t M, uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  return align_up(4 * (gemm_block_floats(N, K, b.split_columns, b) + M * N + 16)) / 4;
}
// Where an unsplit product of several pieces of depths adds to C: an area of sums, and the packed block of B behind it, share what the block alone has
// else. For a tile of so many rows and columns.
constexpr uint64_t gemm_add_width(uint64_t N, const CpuBlocks& b) { return larger(smaller(b.columns, N + b.tile - 1), 2 * b.tile); }
struct GemmAddRoom {
  uint32_t rows, columns;  // of the area; columns of the block, too

  constexpr GemmAddRoom(uint64_t N, uint32_t tile_columns, uint32_t tile_rows, const CpuBlocks& b) {
    const uint64_t width = gemm_add_width(N, b);
    columns = static_cast<uint32_t>(larger(1, width / 2 / tile_columns) * tile_columns);
    rows = static_cast<uint32_t>(b.depth * (width - columns) / columns / tile_rows * tile_rows);
  }
};
// Never less than the unsplit product wants, so that it grows with K: a shorter last chunk fits too.
constexpr uint64_t gemm_split_scratch_bytes(uint64_t M, uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  const uint32_t splits = gemm_splits(M, N, K, size);
  const uint64_t more = splits > 1 ? splits * gemm_split_part_floats(M, N, K, size) : K > b.depth ? b.depth * gemm_add_width(N, b) + b.slack : 0;
  return larger(gemm_scratch_bytes(N, K, DType::kF32, size), align_up(4 * more));
}

// Rows are summed in blocks of fixed height, then the blocks' sums in order.
constexpr uint32_t kColumnSumBlocks = 16;
constexpr uint64_t column_sums_scratch_bytes(uint64_t columns) { return align_up(4 * kColumnSumBlocks * columns); }

// ---- a worker's stack ----

// Floats between two lines of so many that stand as f32 on the stack: an odd number of the cache's lines, because a power of two would let them
// share its sets.
constexpr uint32_t widened_stride(uint32_t depths) { return ((depths + 15) / 16 | 1) * 16; }
// Runs of at least 16 floats, and what is left at both ends of a panel.
constexpr uint32_t most_runs(uint32_t depths) { return depths / 16 + 2; }

// Rows of C that a tile for f32 has at most: so many lines of A stand beside its panel. choose_cpu_machine() takes no tile with more. Lines of B
// stand alone, and take less than panel and tile.
constexpr uint32_t kMostTileRows = 16;
constexpr uint64_t kMostRowRunBytes = (kMaxRowTile + 2) * kMostPointerBytes;
static_assert(sizeof(RowRun) <= kMostRowRunBytes && sizeof(void*) <= kMostPointerBytes);
// Frames of the loop nest, beyond those of any kernel.
constexpr uint64_t kProductFrameBytes = 1152;

// What a product packs or copies on the stack beside A's panel and one tile of C.
struct ProductStack {
  DType output = DType::kF32;  // a C stored as bf16 has a strip of sums
  bool lines = false;          // lines of an operand stand there as f32 first
};
// C[.,N] = A[.,K] B[K,N].
constexpr uint64_t product_stack_bytes(uint64_t N, uint64_t K, const ProductStack& with, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  const uint32_t depth = static_cast<uint32_t>(smaller(K, b.depth));
  const uint64_t panel = uint64_t{depth} * b.tile + b.slack, tile = uint64_t{b.tile} * b.tile;
  const uint64_t lines = with.lines ? smaller(b.tile, kMostTileRows) * widened_stride(depth) : 0;
  const uint64_t strip = with.output == DType::kBf16 ? b.tile * smaller(gemm_narrow_columns(K, b), N + b.tile - 1) : 0;
  const uint64_t runs = larger(most_runs(depth) * kMostRowRunBytes, depth * kMostPointerBytes);  // or where the depths of a weight's gradient lie
  return kProductFrameBytes + stack_room_bytes(4 * (panel + tile)) + stack_room_bytes(larger(4 * lines, runs)) + stack_room_bytes(4 * strip);
}

}  // namespace reprise
