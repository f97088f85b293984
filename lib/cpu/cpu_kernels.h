// Declarations of every CPU kernel; the contract of each is its argument struct in lib/backend.h.
// Here so that the table in cpu_backend.cpp, tests and benchmarks can name kernels that live in a file per family.
// It must not know which rows call them, nor which vector level or tile runs inside.
#pragma once

#include "lib/backend.h"

// Instantiates a kernel for every way to store activations, in the file that defines it.
#define REPRISE_INSTANTIATE(kernel, Args)                             \
  template Status kernel(const KernelContext&, const Args##Of<float>&); \
  template Status kernel(const KernelContext&, const Args##Of<Bf16>&);

namespace reprise {

template <typename Stored>
Status cpu_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cpu_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args);

template <typename Stored>
Status cpu_batch_norm_statistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args);
Status cpu_batch_norm_running(const KernelContext& context, const BatchNormRunningArgs& args);
template <typename Stored>
Status cpu_batch_norm_forward(const KernelContext& context, const BatchNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_norm_add_relu_forward(const KernelContext& context, const NormAddReluArgsOf<Stored>& args);
template <typename Stored>
Status cpu_batch_norm_inference(const KernelContext& context, const BatchNormInferenceArgsOf<Stored>& args);
template <typename Stored>
Status cpu_batch_norm_backward(const KernelContext& context, const BatchNormBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_relu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args);
template <typename Stored>
Status cpu_relu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_add_forward(const KernelContext& context, const AddArgsOf<Stored>& args);
template <typename Stored>
Status cpu_copy_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args);
template <typename Stored>
Status cpu_gelu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args);
template <typename Stored>
Status cpu_gelu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_move(const KernelContext& context, const UnaryArgsOf<Stored>& args);

template <typename Stored>
Status cpu_max_pool_forward(const KernelContext& context, const MaxPoolForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_max_pool_backward(const KernelContext& context, const MaxPoolBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_global_pool_forward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args);
template <typename Stored>
Status cpu_global_pool_backward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args);

template <typename Stored>
Status cpu_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cpu_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args);
template <typename Stored>
Status cpu_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args);

template <typename Stored>
Status cpu_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_embedding_forward(const KernelContext& context, const EmbeddingForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_embedding_backward(const KernelContext& context, const EmbeddingBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_attention_forward(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_attention_backward(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_dropout(const KernelContext& context, const DropoutArgsOf<Stored>& args);

template <typename Stored>
Status cpu_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args);

Status cpu_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args);
Status cpu_grad_norm_finish(const KernelContext& context, const GradNormFinishArgs& args);
Status cpu_sgd_update(const KernelContext& context, const SgdArgs& args);
Status cpu_adamw_update(const KernelContext& context, const AdamWArgs& args);

}  // namespace reprise
