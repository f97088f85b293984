// The split of the loss head's rows into chunks and of its classes into blocks, the products that
// it uses, and its scratch. Planner and kernels must use the same rules, and the planner has no
// device.
#pragma once

#include "cuda/gemm/linear_rules.h"
#include "cuda/row_chunks.h"
#include "lib/tensor.h"

namespace reprise {

// Splits the rows so that the logits of one chunk need at most about 64 MiB. A chunk has at least
// 128 rows, unless M is smaller, because each chunk reads and writes all of dw. All chunks have
// about the same number of rows, in whole tiles of a product.
constexpr CudaRowChunks cuda_loss_head_chunks(uint64_t M, uint64_t V) {
  constexpr uint64_t kLogits = uint64_t{16} << 20, kMax = 2048, kTile = kSquareTile.rows;
  const uint64_t fit = kLogits / (V == 0 ? 1 : V), rows = fit < kTile ? kTile : fit > kMax ? kMax : fit;
  const uint64_t even = M <= kTile ? M : whole_pieces(M, whole_pieces(M, rows));
  return {M, M <= kTile ? (M == 0 ? 1 : M) : whole_pieces(even, kTile) * kTile};
}

// True if tensor cores multiply bf16. The logits' gradients are then rounded to bf16.
constexpr bool loss_head_uses_mma(DType stored, uint64_t C) { return stored == DType::kBf16 && are_chunks(C); }
// True if tensor cores multiply f32, in all three products.
constexpr bool loss_head_uses_math(DType stored, ProductMath math, uint64_t C) {
  return stored == DType::kF32 && math != ProductMath::kF32 && are_chunks(C, stored);
}

// Returns the number of classes in one block. A decoded copy of their weights in bf16 needs at most
// about 32 MiB on a small card and 96 MiB on a large card. The size does not depend on the format
// of the weights: each block adds to dx separately, so the block size decides the bits of dx.
constexpr uint64_t loss_head_block(uint64_t C, uint64_t V, CardSize card) {
  constexpr uint64_t kPiece = 128;  // classes; the weights of 128 classes are whole blocks in every format
  const uint64_t elements = uint64_t{card == CardSize::kSmall ? 16u : 48u} << 20;
  if (V * C <= elements) return V;
  const uint64_t fit = elements / C, maximum = fit < kPiece ? kPiece : fit;
  return whole_pieces(whole_pieces(V, whole_pieces(V, maximum)), kPiece) * kPiece;
}

// The splits of the loss head, and the layout of its scratch:
// [ u64: rows with a label | f64 for each row: its loss | u32 for each row: 1 if predicted right |
//   f32 logits of a chunk, rows x pitch | a block of weights | f32: the parts of a chunk's dx ]
struct CudaLossHeadScratch {
  CudaRowChunks chunks;
  uint64_t pitch;    // elements from one row of logits to the next: whole chunks of bf16
  uint64_t block;    // classes in a block
  DepthSplit split;  // split of a block's classes into partial sums of dx
  uint64_t losses_at, hits_at, logits_at, weights_at, parts_at, bytes;

  constexpr uint64_t blocks(uint64_t V) const { return whole_pieces(V, block); }
};
constexpr CudaLossHeadScratch cuda_loss_head_scratch(uint64_t M, uint64_t C, uint64_t V, DType stored, DType weights,
                                                     ProductMath math, CardSize card, bool gradients) {
  CudaLossHeadScratch s{};
  const bool mma = loss_head_uses_mma(stored, C);
  s.chunks = cuda_loss_head_chunks(M, V);
  s.pitch = whole_pieces(V, 8) * 8;
  s.block = loss_head_block(C, V, card);
  const ProductShape dx = {s.chunks.rows, C, s.block};
  s.split = split_depth(dx,
                        mma                                    ? mma_tile(dx)
                        : loss_head_uses_math(stored, math, C) ? chunk_tile(dx, math, card)
                                                               : simt_tile(dx, card),
                        card);
  const uint64_t decoded =
      mma ? rounded_weights_bytes(weights, s.block * C) : plain_weights_bytes(weights, stored, math, s.block * C);
  s.losses_at = align_up(sizeof(uint64_t));
  s.hits_at = s.losses_at + align_up(sizeof(double) * M);
  s.logits_at = s.hits_at + align_up(sizeof(uint32_t) * M);
  s.weights_at = s.logits_at + align_up(sizeof(float) * s.chunks.rows * s.pitch);
  s.parts_at = s.weights_at + align_up(decoded);
  s.bytes = s.parts_at + (gradients ? align_up(sizeof(float) * s.split.count * dx.outputs()) : 0);
  return s;
}

template <typename A>
constexpr uint64_t loss_head_scratch_bytes(const ShapedCall& c, ProductMath math, CardSize card) {
  const Tensor &x = c[A::kX], &w = c[A::kW];
  constexpr bool kGradients = A::kInfo.pass == Pass::kBackward;
  return cuda_loss_head_scratch(x.leading_elements(), x.last_dimension(), w.shape[0], x.dtype, w.dtype, math, card,
                                kGradients)
      .bytes;
}
template <CardSize kCard, ProductMath kMath>
constexpr void add_cuda_loss_head_rules(BackendRules& rules) {
  rules.have(LossHeadKernels{});
  rules.of<LossHeadBackward>().weights = rules.of<LossHeadForward>().weights = rules.of<LossHeadEvaluate>().weights =
      kEveryWeight;
  rules.of<LossHeadBackward>().scratch_bytes = [](const ShapedCall& c) {
    return loss_head_scratch_bytes<LossHeadBackward>(c, kMath, kCard);
  };
  rules.of<LossHeadForward>().scratch_bytes = [](const ShapedCall& c) {
    return loss_head_scratch_bytes<LossHeadForward>(c, kMath, kCard);
  };
  rules.of<LossHeadEvaluate>().scratch_bytes = [](const ShapedCall& c) {
    return loss_head_scratch_bytes<LossHeadEvaluate>(c, kMath, kCard);
  };
}

}  // namespace reprise
