// Attention in bf16 on tensor cores, in the style of FlashAttention 2 (Dao 2023): the functions
// that launch it. Forward and backward are compiled separately. The f32 kernels of attention.cu
// compute all other heads.
#pragma once

#include "cuda/cuda_kernels.h"

namespace reprise {

// Launches the forward of heads for which attention_uses_mma() (attention_rules.h) is true.
void launch_attention_forward_mma(const KernelContext& context, const AttentionForwardArgsOf<Bf16>& args);
// Launches the backward of heads for which attention_uses_mma() is true. delta[B,heads,T] is the
// sum of dy * y over a head's channels.
void launch_attention_backward_mma(const KernelContext& context, const AttentionBackwardArgsOf<Bf16>& args,
                                   const float* delta);

}  // namespace reprise
