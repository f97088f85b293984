// Every CUDA kernel's host side, and the table that says which rows call it. The contract of each is its argument struct in lib/ops.
// Here so that the table names kernels that live in one file per family.
#pragma once

#include "lib/backend.h"

// Instantiates a kernel for every way to store activations, in the file that defines it.
#define REPRISE_CUDA_INSTANTIATE(kernel, Args)                          \
  template Status kernel(const KernelContext&, const Args##Of<float>&); \
  template Status kernel(const KernelContext&, const Args##Of<Bf16>&);

namespace reprise {

// Each puts its work on context.queue (a cudaStream_t) and returns without waiting for it. Pointers are device
// pointers, aligned to kAlignment as all slots are. Any M and any C. A launch that fails is kBackend with the
// cudaError_t as detail.

template <typename Stored>
Status cuda_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cuda_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args);
template <typename Stored>
Status cuda_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args);

// Of x, or of relu(norm(x)) where args.norm is there.
template <typename Stored>
Status cuda_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cuda_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args);

template <typename Stored>
Status cuda_attention_forward(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_attention_backward(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cuda_relu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args);
template <typename Stored>
Status cuda_relu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_add_forward(const KernelContext& context, const AddArgsOf<Stored>& args);
template <typename Stored>
Status cuda_copy_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args);
template <typename Stored>
Status cuda_gelu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args);
template <typename Stored>
Status cuda_gelu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_swiglu_forward(const KernelContext& context, const SwigluArgsOf<Stored>& args);
template <typename Stored>
Status cuda_swiglu_backward(const KernelContext& context, const SwigluBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_move(const KernelContext& context, const UnaryArgsOf<Stored>& args);

Status cuda_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<float>& args);
Status cuda_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<float>& args);

// Over activations that are stored so.
template <typename Stored>
constexpr void add_cuda_activation_kernels(Backend& table) {
  table.set<ReluForward, Stored, cuda_relu_forward<Stored>>();
  table.set<ReluBackward, Stored, cuda_relu_backward<Stored>>();
  table.set<AddForward, Stored, cuda_add_forward<Stored>>();
  table.set<CopyForward, Stored, cuda_copy_forward<Stored>>();
  table.set<GeluForward, Stored, cuda_gelu_forward<Stored>>();
  table.set<GeluBackward, Stored, cuda_gelu_backward<Stored>>();
  table.set<SwigluForward, Stored, cuda_swiglu_forward<Stored>>();
  table.set<SwigluBackward, Stored, cuda_swiglu_backward<Stored>>();
  table.set<MoveForward, Stored, cuda_move<Stored>>();
}

// Products, over activations that are stored so.
template <typename Stored>
constexpr void add_cuda_products(Backend& table) {
  table.set<LinearForward, Stored, cuda_linear_forward<Stored>>();
  table.set<LinearBackwardData, Stored, cuda_linear_backward_data<Stored>>();
  table.set<LinearBackwardWeight, Stored, cuda_linear_backward_weight<Stored>>();
  table.set<LinearBackwardBias, Stored, cuda_linear_backward_bias<Stored>>();
  table.set<ConvForward, Stored, cuda_conv_forward<Stored>>();
  table.set<ConvBackwardData, Stored, cuda_conv_backward_data<Stored>>();
  table.set<ConvBackwardWeight, Stored, cuda_conv_backward_weight<Stored>>();
  table.set<NormConvForward, Stored, cuda_conv_forward<Stored>>();
  table.set<NormConvBackwardWeight, Stored, cuda_conv_backward_weight<Stored>>();
  table.set<AttentionForward, Stored, cuda_attention_forward<Stored>>();
  table.set<AttentionBackward, Stored, cuda_attention_backward<Stored>>();
}

constexpr void add_cuda_kernels(Backend& table) {
  add_cuda_products<float>(table);
  add_cuda_products<Bf16>(table);
  add_cuda_activation_kernels<float>(table);
  add_cuda_activation_kernels<Bf16>(table);
  table.set<LayerNormForward, float, cuda_layer_norm_forward>();
  table.set<LayerNormBackward, float, cuda_layer_norm_backward>();
}

}  // namespace reprise
