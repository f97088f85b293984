// Attention in bf16 on tensor cores, in the style of FlashAttention 2 (Dao 2023): what starts it.
// Here because its forward and its backward are compiled apart, beside the form in f32 that takes all other heads (attention.cu).
#pragma once

#include "cuda/cuda_kernels.h"

namespace reprise {

// Of heads that attention_uses_mma() (attention_rules.h).
void launch_attention_forward_mma(const KernelContext& context, const AttentionForwardArgsOf<Bf16>& args);
// delta[B,heads,T]: the sum over a head's channels of dy * y.
void launch_attention_backward_mma(const KernelContext& context, const AttentionBackwardArgsOf<Bf16>& args, const float* delta);

}  // namespace reprise
