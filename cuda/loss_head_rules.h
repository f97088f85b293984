// How the loss head cuts its rows into chunks, and the scratch that it takes.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include "cuda/row_chunks.h"
#include "lib/tensor.h"

namespace reprise {

// Rows of logits in existence at a time: at most about 64 MiB, but no fewer than 128, because each chunk reads and writes all of dw; of
// equal height.
constexpr CudaRowChunks cuda_loss_head_chunks(uint64_t M, uint64_t V) {
  constexpr uint64_t kLogits = uint64_t{16} << 20, kLeast = 128, kMost = 2048;
  const uint64_t fit = kLogits / (V == 0 ? 1 : V), rows = fit < kLeast ? kLeast : fit > kMost ? kMost : fit;
  return cuda_row_chunks(M, M == 0 ? 1 : (M + rows - 1) / rows, 1);
}

// [ u64: the rows with a label | f64 a row: its loss | u32 a row: predicted right | f32 logits of a chunk, rows x V ]
struct CudaLossHeadScratch {
  uint64_t losses_at, hits_at, logits_at, bytes;
};
constexpr CudaLossHeadScratch cuda_loss_head_scratch(uint64_t M, uint64_t V) {
  CudaLossHeadScratch s{};
  s.losses_at = align_up(sizeof(uint64_t));
  s.hits_at = s.losses_at + align_up(sizeof(double) * M);
  s.logits_at = s.hits_at + align_up(sizeof(uint32_t) * M);
  s.bytes = s.logits_at + sizeof(float) * cuda_loss_head_chunks(M, V).rows * V;
  return s;
}

}  // namespace reprise
