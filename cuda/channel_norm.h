// Batch-norm of some channels.
// Here so that whoever normalises, or asks whether a normalised pixel is positive, computes the same expression and gets the same bits.
#pragma once

#include "cuda/pack.h"

namespace reprise {

template <uint32_t kWidth>
struct ChannelNorm {
  Pack<kWidth> mean, scale, shift;  // (x - mean) scale + shift

  ChannelNorm() = default;
  // Vectors of channels, the pack's first one at c.
  __device__ ChannelNorm(const float* means, const float* rstd, const float* gamma, const float* beta, uint64_t c)
      : mean(load_pack<kWidth>(means + c)), scale(load_pack<kWidth>(rstd + c)), shift(load_pack<kWidth>(beta + c)) {
    const Pack<kWidth> gammas = load_pack<kWidth>(gamma + c);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) scale.at[k] *= gammas.at[k];
  }
  __device__ float of(float x, uint32_t k) const { return fmaf(x - mean.at[k], scale.at[k], shift.at[k]); }
};

}  // namespace reprise
