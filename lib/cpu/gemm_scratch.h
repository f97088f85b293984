// Scratch and stack bytes of a matrix product, and the fixed blocking that those bytes follow from: planner, checker and kernels agree on them at
// compile time, with no processor at hand. Of the micro-kernel in use only the maxima of its size are known.
#pragma once

#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/partition.h"
#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kNc = 1024;      // columns of B packed at a time, at most: kKc * kNc floats, 1.5 MiB; a machine may take fewer
constexpr uint32_t kNarrowNc = 256; // the same for a C stored as bf16, whose whole K is packed, in about kNarrowFloats
constexpr uint64_t kNarrowFloats = 524288;
constexpr uint32_t kSplitNc = 128;  // the same for each part of a product that is split along K
constexpr uint32_t kSplits = 8;     // parts of a split product
constexpr uint64_t kSplitOutputs =
    65536;  // C is split along K when it has at most this many elements: too few tiles for workers

// Floats that one packed piece of B[K,N] takes, at most `columns` wide.
constexpr uint64_t gemm_block_floats(uint64_t N, uint64_t K, uint32_t columns) {
  return smaller(K, kKc) * smaller(columns, N + kMaxMr - 1) + kPanelSlack;
}
// Depths that are packed together, in pieces of at most kKc, where B is narrower than the `columns` of a block: C then stays in a cache
// from piece to piece.
constexpr uint32_t gemm_depth_pieces(uint64_t N, uint32_t columns) { return static_cast<uint32_t>(larger(1, columns / (N + kMaxMr - 1))); }
constexpr uint32_t gemm_narrow_columns(uint64_t K) {
  return static_cast<uint32_t>(smaller(kNarrowNc, larger(kMaxMr, kNarrowFloats / larger(K, 1) / kMaxMr * kMaxMr)));
}
constexpr uint64_t gemm_scratch_bytes(uint64_t N, uint64_t K, DType output = DType::kF32) {
  if (output == DType::kBf16) return align_up(4 * (K * smaller(gemm_narrow_columns(K), N + kMaxMr - 1) + kPanelSlack));
  const uint64_t depths = smaller(K, uint64_t{gemm_depth_pieces(N, kNc)} * kKc);
  return align_up(4 * (depths * smaller(kNc, N + kMaxMr - 1) + kPanelSlack));
}
// Enough for every product of at most N columns: a narrower one may pack more depths together.
constexpr uint64_t gemm_scratch_bytes_up_to(uint64_t N, uint64_t K) {
  return align_up(4 * (smaller(K * smaller(kNc, N + kMaxMr - 1), uint64_t{kKc} * kNc) + kPanelSlack));
}

// Parts of C[M,N] = A[M,K] B[K,N] along K; 1 is no split.
constexpr uint32_t gemm_splits(uint64_t M, uint64_t N, uint64_t K) {
  if (M * N > kSplitOutputs) return 1;
  return static_cast<uint32_t>(smaller(kSplits, larger(1, K / kKc)));
}
// A part owns a partial C and, behind it and aligned to 64 bytes, a packed block.
constexpr uint64_t gemm_split_part_floats(uint64_t M, uint64_t N, uint64_t K) {
  return align_up(4 * (gemm_block_floats(N, K, kSplitNc) + M * N + 16)) / 4;
}
// Never less than the unsplit product wants, so that it grows with K: a shorter last chunk fits too.
constexpr uint64_t gemm_split_scratch_bytes(uint64_t M, uint64_t N, uint64_t K) {
  const uint32_t splits = gemm_splits(M, N, K);
  return larger(gemm_scratch_bytes(N, K), splits == 1 ? 0 : 4 * splits * gemm_split_part_floats(M, N, K));
}

// Rows are summed in blocks of fixed height, then the blocks' sums in order.
constexpr uint32_t kColumnSumBlocks = 16;
constexpr uint64_t column_sums_scratch_bytes(uint64_t columns) { return align_up(4 * kColumnSumBlocks * columns); }

// Of a worker's stack: A's panel, one tile, the lines that a packer copies first, and the strip of sums of a C stored as bf16.
constexpr uint64_t product_stack_bytes(DType output) {
  const uint64_t panel = kKc * kMaxMr + kPanelSlack, tile = kMaxMr * kMaxNr, lines = kKc * kMaxMr;
  return 4 * (panel + tile + lines + (output == DType::kBf16 ? kMaxMr * kNarrowNc : 0));
}

}  // namespace reprise
