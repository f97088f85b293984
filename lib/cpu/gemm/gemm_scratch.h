// Scratch and stack bytes of a matrix product. Planner, checker and kernels share them at compile
// time, without a processor at hand. The bytes follow from the blocks of the core's size
// (cpu_size.h) and from the maximum sizes of a micro-kernel, not from the micro-kernel in use.
#pragma once

#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/stack_buffer.h"
#include "lib/tensor.h"

namespace reprise {

// Returns the floats of one packed piece of B[K,N], at most `columns` wide.
constexpr uint64_t gemm_block_floats(uint64_t N, uint64_t K, uint32_t columns, const CpuBlocks& blocks) {
  return smaller(K, blocks.depth) * smaller(columns, N + blocks.tile - 1) + blocks.slack;
}
// Returns how many pieces of at most blocks.depth depths are packed together: more than one if B is
// narrower than the `columns` of a block. C then stays in a cache from piece to piece.
constexpr uint32_t gemm_depth_pieces(uint64_t N, uint32_t columns, const CpuBlocks& blocks) {
  return static_cast<uint32_t>(larger(1, columns / (N + blocks.tile - 1)));
}
constexpr uint32_t gemm_narrow_columns(uint64_t K, const CpuBlocks& blocks) {
  const uint64_t tile = blocks.tile;
  return static_cast<uint32_t>(
      smaller(blocks.narrow_columns, larger(tile, blocks.narrow_floats / larger(K, 1) / tile * tile)));
}
constexpr uint64_t gemm_scratch_bytes(uint64_t N, uint64_t K, DType output = DType::kF32,
                                      CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  if (output == DType::kBf16) return align_up(4 * (K * smaller(gemm_narrow_columns(K, b), N + b.tile - 1) + b.slack));
  const uint64_t depths = smaller(K, uint64_t{gemm_depth_pieces(N, b.columns, b)} * b.depth);
  return align_up(4 * (depths * smaller(b.columns, N + b.tile - 1) + b.slack));
}
// Returns scratch bytes that are enough for every product of at most N columns. A narrower product
// may pack more depths together, and so need more scratch than one of N columns.
constexpr uint64_t gemm_scratch_bytes_up_to(uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  return align_up(4 * (smaller(K * smaller(b.columns, N + b.tile - 1), uint64_t{b.depth} * b.columns) + b.slack));
}

// Returns the number of parts along K of the product C[M,N] = A[M,K] B[K,N]; 1 if the product is
// not split.
constexpr uint32_t gemm_splits(uint64_t M, uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  if (M * N > b.split_outputs) return 1;
  return static_cast<uint32_t>(smaller(b.splits, larger(1, K / b.depth)));
}
// Returns the floats of a part: a partial C followed by a packed block, which is aligned to 64
// bytes.
constexpr uint64_t gemm_split_part_floats(uint64_t M, uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  return align_up(4 * (gemm_block_floats(N, K, b.split_columns, b) + M * N + 16)) / 4;
}
// Returns the columns of scratch for a product that is not split, has several pieces of depths and
// adds to C. GemmAddBuffer divides them into an area of sums, followed by a packed block of B.
constexpr uint64_t gemm_add_width(uint64_t N, const CpuBlocks& b) {
  return larger(smaller(b.columns, N + b.tile - 1), 2 * b.tile);
}
struct GemmAddBuffer {
  uint32_t rows, columns;  // size of the area of sums; the packed block of B has as many columns

  constexpr GemmAddBuffer(uint64_t N, uint32_t tile_columns, uint32_t tile_rows, const CpuBlocks& b) {
    const uint64_t width = gemm_add_width(N, b);
    columns = static_cast<uint32_t>(larger(1, width / 2 / tile_columns) * tile_columns);
    rows = static_cast<uint32_t>(b.depth * (width - columns) / columns / tile_rows * tile_rows);
  }
};
// Returns the scratch bytes of gemm_split(). They are at least those of the unsplit product, so
// that they grow with K: the scratch of a whole chunk is enough for a shorter last chunk.
constexpr uint64_t gemm_split_scratch_bytes(uint64_t M, uint64_t N, uint64_t K, CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  const uint32_t splits = gemm_splits(M, N, K, size);
  const uint64_t more = splits > 1    ? splits * gemm_split_part_floats(M, N, K, size)
                        : K > b.depth ? b.depth * gemm_add_width(N, b) + b.slack
                                      : 0;
  return larger(gemm_scratch_bytes(N, K, DType::kF32, size), align_up(4 * more));
}

// Maximum blocks of rows in a column sum: each is summed separately, then the sums are added in
// order.
constexpr uint32_t kColumnSumBlocks = 16;
constexpr uint64_t column_sums_scratch_bytes(uint64_t columns) { return align_up(4 * kColumnSumBlocks * columns); }

// ---- a worker's stack ----

// Returns the floats between two lines of `depths` floats that are widened to the stack. The
// distance is an odd number of cache lines, because lines whose distance is a power of two would
// share cache sets.
constexpr uint32_t widened_stride(uint32_t depths) { return ((depths + 15) / 16 | 1) * 16; }
// Returns the maximum runs of a panel of `depths` depths: runs of at least 16 floats, and a
// remainder at either end.
constexpr uint32_t max_runs(uint32_t depths) { return depths / 16 + 2; }

// Maximum rows of C in a tile for f32, and so of widened lines of A that are on the stack together
// with A's panel. choose_cpu_machine() accepts no tile with more rows. Widened lines of B are on
// the stack without a panel, and need less space than a panel and a tile.
constexpr uint32_t kMaxTileRows = 16;
constexpr uint64_t kMaxRowRunBytes = (kMaxRowTile + 2) * kMaxPointerBytes;
static_assert(sizeof(RowRun) <= kMaxRowRunBytes && sizeof(void*) <= kMaxPointerBytes);
// Bytes of the loop nest's stack frames, in addition to those of any kernel.
constexpr uint64_t kProductFrameBytes = 1152;

// The parts of a product that are packed or copied on the stack, in addition to A's panel and one
// tile of C.
struct ProductStack {
  DType output = DType::kF32;  // type of C; a C stored as bf16 has a strip of f32 sums on the stack
  bool lines = false;          // true if lines of an operand are first copied to the stack as f32
};
// Returns the stack bytes of a product C[.,N] = A[.,K] B[K,N].
constexpr uint64_t product_stack_bytes(uint64_t N, uint64_t K, const ProductStack& with,
                                       CpuSize size = CpuSize::kLarge) {
  const CpuBlocks& b = blocks_of(size);
  const uint32_t depth = static_cast<uint32_t>(smaller(K, b.depth));
  const uint64_t panel = uint64_t{depth} * b.tile + b.slack, tile = uint64_t{b.tile} * b.tile;
  const uint64_t lines = with.lines ? smaller(b.tile, kMaxTileRows) * widened_stride(depth) : 0;
  const uint64_t strip = with.output == DType::kBf16 ? b.tile * smaller(gemm_narrow_columns(K, b), N + b.tile - 1) : 0;
  // The second size is one pointer for each depth, for the packers of a convolution's weight
  // gradient.
  const uint64_t runs = larger(max_runs(depth) * kMaxRowRunBytes, depth * kMaxPointerBytes);
  return kProductFrameBytes + stack_buffer_bytes(4 * (panel + tile)) + stack_buffer_bytes(larger(4 * lines, runs)) +
         stack_buffer_bytes(4 * strip);
}

}  // namespace reprise
