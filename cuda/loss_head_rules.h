// How the loss head cuts its rows into chunks and its weights into blocks, which products it takes, and the scratch of all this.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include "cuda/linear_rules.h"
#include "cuda/row_chunks.h"
#include "lib/tensor.h"

namespace reprise {

// Rows of logits in existence at a time: at most about 64 MiB, but no fewer than 128, because each chunk reads and writes all of dw; of
// equal height, in whole tiles of a product.
constexpr CudaRowChunks cuda_loss_head_chunks(uint64_t M, uint64_t V) {
  constexpr uint64_t kLogits = uint64_t{16} << 20, kMost = 2048, kTile = kSquareTile.rows;
  const uint64_t fit = kLogits / (V == 0 ? 1 : V), rows = fit < kTile ? kTile : fit > kMost ? kMost : fit;
  const uint64_t even = M <= kTile ? M : whole_pieces(M, whole_pieces(M, rows));
  return {M, M <= kTile ? (M == 0 ? 1 : M) : whole_pieces(even, kTile) * kTile};
}

// Whether tensor cores multiply: the logits' gradients are then rounded to bf16.
constexpr bool loss_head_uses_mma(DType stored, uint64_t C) { return stored == DType::kBf16 && are_chunks(C); }
// Whether they multiply f32, in all three products.
constexpr bool loss_head_uses_math(DType stored, ProductMath math, uint64_t C) {
  return stored == DType::kF32 && math != ProductMath::kF32 && are_chunks(C, stored);
}

// Classes of one product: so many that their weights, where they are decoded or rounded first, take at most about 32 MiB of a small card and
// 96 MiB of a large one as bf16. What they add to dx is a sum by itself, and so does not depend on the weights' format.
constexpr uint64_t loss_head_block(uint64_t C, uint64_t V, CardSize card) {
  constexpr uint64_t kPiece = 128;  // so many rows are whole blocks of any format
  const uint64_t elements = uint64_t{card == CardSize::kSmall ? 16u : 48u} << 20;
  if (V * C <= elements) return V;
  const uint64_t fit = elements / C, most = fit < kPiece ? kPiece : fit;
  return whole_pieces(whole_pieces(V, whole_pieces(V, most)), kPiece) * kPiece;
}

// [ u64: the rows with a label | f64 a row: its loss | u32 a row: predicted right | f32 logits of a chunk, rows x pitch | a block of weights |
//   f32: the parts of a chunk's dx ]
struct CudaLossHeadScratch {
  CudaRowChunks chunks;
  uint64_t pitch;    // from one row of logits to the next: whole chunks of bf16
  uint64_t block;    // of classes
  DepthSplit split;  // of a block's share of dx
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
  return cuda_loss_head_scratch(x.leading_elements(), x.last_dimension(), w.shape[0], x.dtype, w.dtype, math, card, kGradients)
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
