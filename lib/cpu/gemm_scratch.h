// Scratch bytes of the kernels that are matrix products, and the fixed blocking that those bytes follow from.
// Here so that the planner, the checker and the kernels agree at compile time, with no processor at hand.
// It must not know the micro-kernel in use (only the maxima of its size), the number of workers, or any pointer.
#pragma once

#include "lib/cpu/conv_direct.h"
#include "lib/cpu/conv_winograd.h"
#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/partition.h"
#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kNc = 512;       // columns of B packed at a time: kKc * kNc floats, 512 KiB
constexpr uint32_t kNarrowNc = 256; // the same for a C stored as bf16, whose whole K is packed, in about kNarrowFloats
constexpr uint64_t kNarrowFloats = 524288;
constexpr uint32_t kSplitNc = 192;  // the same for each part of a product that is split along K
constexpr uint32_t kSplits = 8;     // parts of a split product
constexpr uint64_t kSplitOutputs =
    65536;  // C is split along K when it has at most this many elements: too few tiles for workers

// Floats that one packed piece of B[K,N] takes, at most `columns` wide.
constexpr uint64_t gemm_block_floats(uint64_t N, uint64_t K, uint32_t columns) {
  return smaller(K, kKc) * smaller(columns, N + kMaxMr - 1) + kPanelSlack;
}
// Depths that are packed together, in pieces of at most kKc, where B is narrow: C then stays in a cache from piece to piece.
constexpr uint32_t gemm_depth_pieces(uint64_t N) { return static_cast<uint32_t>(larger(1, kNc / (N + kMaxMr - 1))); }
constexpr uint32_t gemm_narrow_columns(uint64_t K) {
  return static_cast<uint32_t>(smaller(kNarrowNc, larger(kMaxMr, kNarrowFloats / larger(K, 1) / kMaxMr * kMaxMr)));
}
constexpr uint64_t gemm_scratch_bytes(uint64_t N, uint64_t K, DType output = DType::kF32) {
  if (output == DType::kBf16) return align_up(4 * (K * smaller(gemm_narrow_columns(K), N + kMaxMr - 1) + kPanelSlack));
  const uint64_t depths = smaller(K, uint64_t{gemm_depth_pieces(N)} * kKc);
  return align_up(4 * (depths * smaller(kNc, N + kMaxMr - 1) + kPanelSlack));
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

// `tensors` are a row's arguments in the order of kOps; optional ones may be null.

// The direct kernel's shape as far as tensors tell it: the stride is not among them, but where it is 1 there are nearly
// as many outputs as inputs. A stride taken for 1 only asks for more bytes.
constexpr DirectShape direct_shape_guess(const Tensor& y, const Tensor& x, const Tensor& w) {
  const uint32_t stride = y.shape[1] + w.shape[1] > x.shape[1] ? 1 : 2;
  return {x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2],
          w.shape[0], w.shape[1], w.shape[2], stride,     0,          0};
}
constexpr uint64_t cpu_conv_forward_scratch_bytes(const Tensor* const* tensors) {
  const Tensor &y = *tensors[0], &x = *tensors[3], &w = *tensors[4];
  const DirectShape shape = direct_shape_guess(y, x, w);
  return larger(gemm_scratch_bytes(w.shape[0], w.elements() / w.shape[0], y.dtype),
                larger(direct_fits(shape) ? direct_weights_bytes(w.elements()) : 0,
                       winograd_fits(shape) ? winograd_correlate_bytes(shape.C, shape.K) : 0));
}
// The gathered taps of one stride phase are at most all of them.
constexpr uint64_t cpu_conv_backward_data_scratch_bytes(const Tensor* const* tensors) {
  const Tensor &dx = *tensors[0], &dy = *tensors[1], &w = *tensors[2];
  const bool direct = direct_channels_fit(w.shape[0], w.shape[3]);
  // The correlation whose output is dx; its stride is 1 where the layer's is.
  DirectShape turned = direct_shape_guess(dy, dx, w);
  turned.P = dx.shape[1];
  turned.Q = dx.shape[2];
  return larger(gemm_scratch_bytes(w.shape[3], w.elements() / w.shape[3], dx.dtype),
                larger(direct ? direct_weights_bytes(w.elements()) : 0,
                       winograd_fits(turned) ? winograd_correlate_bytes(w.shape[0], w.shape[3]) : 0));
}
// Strides 1 and 2 both fit, and a stride of 3 cannot give so many outputs (padding stays below the kernel): the GEMM
// never serves.
constexpr bool direct_is_certain(const Tensor& y, const Tensor& x, const Tensor& w) {
  DirectShape shape = direct_shape_guess(y, x, w);
  shape.stride = 2;
  return shape.R * shape.S > 1 && direct_fits(shape) && 3 * shape.P > shape.H + shape.R + 1;
}
constexpr uint64_t cpu_conv_backward_weight_scratch_bytes(const Tensor* const* tensors) {
  const Tensor &dw = *tensors[0], &x = *tensors[1], &dy = *tensors[2];
  const DirectShape shape = direct_shape_guess(dy, x, dw);
  const uint64_t winograd = winograd_fits(shape) ? winograd_gradient_bytes(shape.C, shape.K) : 0;
  const uint64_t direct = direct_fits(shape) ? direct_partials_bytes(dw.elements()) : 0;
  const uint64_t gemm = gemm_split_scratch_bytes(dw.shape[0], dw.elements() / dw.shape[0], dy.leading_elements());
  return larger(winograd, direct_is_certain(dy, x, dw) ? direct : larger(direct, gemm));
}

constexpr uint64_t cpu_linear_forward_scratch_bytes(const Tensor* const* tensors) {
  return gemm_scratch_bytes(tensors[0]->last_dimension(), tensors[1]->last_dimension(), tensors[0]->dtype);
}
constexpr uint64_t cpu_linear_backward_data_scratch_bytes(const Tensor* const* tensors) {
  return gemm_scratch_bytes(tensors[0]->last_dimension(), tensors[1]->last_dimension(), tensors[0]->dtype);
}
constexpr uint64_t cpu_linear_backward_weight_scratch_bytes(const Tensor* const* tensors) {
  const Tensor &dw = *tensors[0], &x = *tensors[1];
  return gemm_split_scratch_bytes(dw.shape[0], dw.last_dimension(), x.leading_elements());
}

// Rows are summed in blocks of fixed height, then the blocks' sums in order.
constexpr uint32_t kColumnSumBlocks = 16;
constexpr uint64_t cpu_linear_backward_bias_scratch_bytes(const Tensor* const* tensors) {
  return align_up(4 * kColumnSumBlocks * tensors[0]->last_dimension());
}

// Rows of logits in existence at a time: a chunk of at most about 72 MiB, but no thinner than 128 rows, because each one reads and
// writes all of dW and packs all of w twice. Chunks of equal height: a thin last one would cost as much as a full one.
constexpr uint64_t loss_head_chunk_rows(uint64_t M, uint64_t V) {
  const uint64_t most = larger(128, smaller(1024, (uint64_t{18} << 20) / larger(V, 1)));
  return divide_up(M, larger(1, divide_up(M, most)));
}
// [ logits rows x V | one double a row: its loss | one u32 a row: predicted right | dx rows x C, if that is bf16 | column sums |
//   packed blocks ]
struct LossHeadScratch {
  uint64_t rows, losses_at, hits_at, dx_at, sums_at, gemm_at, bytes;
};
constexpr LossHeadScratch loss_head_scratch(uint64_t M, uint64_t C, uint64_t V, bool backward, DType stored) {
  LossHeadScratch s{};
  s.rows = loss_head_chunk_rows(M, V);
  s.losses_at = align_up(4 * s.rows * V);
  s.hits_at = s.losses_at + align_up(8 * s.rows);
  s.dx_at = s.hits_at + align_up(4 * s.rows);
  s.sums_at = s.dx_at + (backward && stored == DType::kBf16 ? align_up(4 * s.rows * C) : 0);
  s.gemm_at = s.sums_at + (backward ? align_up(4 * kColumnSumBlocks * V) : 0);
  const uint64_t forward = gemm_scratch_bytes(V, C);
  const uint64_t data = backward ? gemm_scratch_bytes(C, V) : 0;
  const uint64_t weight = backward ? gemm_split_scratch_bytes(V, C, s.rows) : 0;
  s.bytes = s.gemm_at + larger(forward, larger(data, weight));
  return s;
}
constexpr uint64_t cpu_loss_head_backward_scratch_bytes(const Tensor* const* tensors) {
  const Tensor &x = *tensors[4], &w = *tensors[5];
  return loss_head_scratch(x.leading_elements(), x.last_dimension(), w.shape[0], true, x.dtype).bytes;
}
constexpr uint64_t cpu_loss_head_evaluate_scratch_bytes(const Tensor* const* tensors) {
  const Tensor &x = *tensors[1], &w = *tensors[2];
  return loss_head_scratch(x.leading_elements(), x.last_dimension(), w.shape[0], false, x.dtype).bytes;
}

}  // namespace reprise
