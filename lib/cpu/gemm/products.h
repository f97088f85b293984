// Products of activations and weights, and of two activations. If activations are stored as bf16
// and the machine has a tile for pairs, pairs are multiplied; otherwise products are in f32. Linear
// layers and pointwise convolutions share this choice.
#pragma once

#include "lib/cpu/gemm/bf16_pairs.h"

namespace reprise {

// Computes C[M,N] (+)= A[M,K] W, with a row-major A.
template <typename Output>
void multiply_weights(const KernelContext& context, const GemmShape& shape, const float* a, const WeightPacker& w,
                      const Output& output, bool accumulate, void* scratch) {
  gemm(context, shape, MatrixPacker{a, static_cast<int64_t>(shape.K), 1}, w, output, accumulate, scratch);
}
template <typename Output>
void multiply_weights(const KernelContext& context, const GemmShape& shape, const Bf16* a, const WeightPacker& w,
                      const Output& output, bool accumulate, void* scratch) {
  const GemmTile* tile = find_pair_tile(context, shape.K);
  if (tile == nullptr || shape.K % 2 != 0) {
    return gemm(context, shape, MatrixPackerOf<Bf16>{a, static_cast<int64_t>(shape.K), 1}, w, output, accumulate,
                scratch);
  }
  multiply_pairs(context, *tile, shape, PairedLines{a, shape.K, shape.K, tile->group_of_a},
                 PairedWeights{w, shape.K, tile->group_of_b}, output, accumulate, scratch);
}

// Computes what multiply_columns() of gemm.h computes, for operands stored as bf16.
inline void multiply_columns(const KernelContext& context, const GemmShape& shape, const Bf16* a, const Bf16* b,
                             float* c, bool accumulate, void* scratch) {
  const int64_t M = static_cast<int64_t>(shape.M), N = static_cast<int64_t>(shape.N);
  if (const GemmTile* tile = find_pair_tile(context, shape.K); tile != nullptr) {
    return gemm_split(context, {shape.M, shape.N, pair_depths(*tile, shape.K)},
                      PairedRows{a, shape.K, shape.M, tile->group_of_a},
                      PairedRows{b, shape.K, shape.N, tile->group_of_b}, c, accumulate, scratch, tile);
  }
  gemm_split(context, shape, MatrixPackerOf<Bf16>{a, 1, M}, MatrixPackerOf<Bf16>{b, 1, N}, c, accumulate, scratch);
}

}  // namespace reprise
