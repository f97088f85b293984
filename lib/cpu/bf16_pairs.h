// Matrix products whose operands are multiplied as bf16 and summed in f32: gemm.h over pairs of them.
// Here so that linear layers and pointwise convolutions choose between this and widening to f32 in one place.
//
// Two bf16 that follow each other along the depth K are one element of 32 bits: panels, rows and blocking are those of gemm.h at
// half the depth, and only the tile knows better. Rows stored as bf16 are such elements as they lie, and so are weights. Weights stored as
// f32 are rounded to bf16, to the nearest even, while they are packed. A `const float*` to pairs is an address alone: packers and the tile copy
// the bits that lie there and read no float.
//
// This is taken by shape alone, on a machine that has the tile: for any depth where both operands are packed, for an even one where rows
// serve as they lie (an odd row would begin inside a pair). Else bf16 is widened and multiplied as f32.
#pragma once

#include "lib/bf16.h"
#include "lib/cpu/gemm.h"

namespace reprise {

// Null where the level or this build lacks it; its name is part of the vector level's.
const GemmTile* pair_tile(VectorLevel level);

// Lines and depths of `weights`, rounded where they are f32; depth k is the pair 2k, 2k + 1.
struct PairedWeights {
  WeightPacker weights;
  void operator()(float* panel, const PanelRange& range) const;
};

// Lines are the columns of data[rows, columns], depths its rows by twos; a last row without another has zeros for it.
struct PairedRows {
  const Bf16* data;
  uint64_t rows, columns;
  void operator()(float* panel, const PanelRange& range) const;
};

// C[M,N] (+)= A[M,K] W, A row-major.
template <typename Output>
void multiply_weights(const KernelContext& context, const GemmShape& shape, const float* a, const WeightPacker& w, const Output& output,
                      bool accumulate, void* scratch) {
  gemm(context, shape, MatrixPacker{a, static_cast<int64_t>(shape.K), 1}, w, output, accumulate, scratch);
}
template <typename Output>
void multiply_weights(const KernelContext& context, const GemmShape& shape, const Bf16* a, const WeightPacker& w, const Output& output,
                      bool accumulate, void* scratch) {
  const int64_t K = static_cast<int64_t>(shape.K);
  const GemmTile* tile = pair_tile(cpu_machine(context).level);
  if (tile == nullptr || K % 2 != 0) {
    return gemm(context, shape, MatrixPackerOf<Bf16>{a, K, 1}, w, output, accumulate, scratch);
  }
  const MatrixPacker pairs{reinterpret_cast<const float*>(a), K / 2, 1};
  gemm(context, {shape.M, shape.N, shape.K / 2}, pairs, PairedWeights{w}, output, accumulate, scratch, tile);
}

// multiply_columns of gemm.h for operands stored as bf16.
inline void multiply_columns(const KernelContext& context, const GemmShape& shape, const Bf16* a, const Bf16* b, float* c, bool accumulate,
                             void* scratch) {
  const int64_t M = static_cast<int64_t>(shape.M), N = static_cast<int64_t>(shape.N);
  if (const GemmTile* tile = pair_tile(cpu_machine(context).level); tile != nullptr) {
    return gemm_split(context, {shape.M, shape.N, divide_up(shape.K, 2)}, PairedRows{a, shape.K, shape.M},
                      PairedRows{b, shape.K, shape.N}, c, accumulate, scratch, tile);
  }
  gemm_split(context, shape, MatrixPackerOf<Bf16>{a, 1, M}, MatrixPackerOf<Bf16>{b, 1, N}, c, accumulate, scratch);
}

}  // namespace reprise
