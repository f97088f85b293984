// Declarations of every CUDA kernel's host side; the contract of each is its argument struct in lib/ops.
// Here so that the table in cuda_backend.cu names kernels that live in one file per family.
#pragma once

#include "lib/backend.h"

namespace reprise {

// Each puts its work on context.queue (a cudaStream_t) and returns without waiting for it. Pointers are device
// pointers, aligned to kAlignment as all slots are. Any M and any C. A launch that fails is kBackend with the
// cudaError_t as detail.
Status cuda_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<float>& args);
Status cuda_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<float>& args);

}  // namespace reprise
