// Batch-norm of kWidth channels. Kernels that normalise and kernels that test whether a normalised
// pixel is positive use this one expression, so that all get the same bits.
#pragma once

#include "cuda/gemm/pack.h"

namespace reprise {

template <uint32_t kWidth>
struct ChannelNorm {
  Pack<kWidth> mean, scale, shift;  // the norm is (x - mean) * scale + shift

  ChannelNorm() = default;
  // Loads kWidth channels from channel c on; the arguments are vectors of all channels.
  __device__ ChannelNorm(const float* means, const float* rstd, const float* gamma, const float* beta, uint64_t c)
      : mean(load_pack<kWidth>(means + c)), scale(load_pack<kWidth>(rstd + c)), shift(load_pack<kWidth>(beta + c)) {
    const Pack<kWidth> gammas = load_pack<kWidth>(gamma + c);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) scale.at[k] *= gammas.at[k];
  }
  __device__ float of(float x, uint32_t k) const { return fmaf(x - mean.at[k], scale.at[k], shift.at[k]); }
};

}  // namespace reprise
