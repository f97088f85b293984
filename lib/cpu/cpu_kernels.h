// Declarations of every CPU kernel; the contract of each is its argument struct in lib/backend.h.
// Here so that the table in cpu_backend.cpp, tests and benchmarks can name kernels that live in a file per family.
// It must not know which rows call them, nor which vector level or tile runs inside.
#pragma once

#include "lib/backend.h"

namespace reprise {

Status cpu_conv_forward(const KernelContext& context, const ConvForwardArgs& args);
Status cpu_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgs& args);
Status cpu_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgs& args);

Status cpu_batch_norm_statistics(const KernelContext& context, const BatchNormStatisticsArgs& args);
Status cpu_batch_norm_running(const KernelContext& context, const BatchNormRunningArgs& args);
Status cpu_batch_norm_forward(const KernelContext& context, const BatchNormForwardArgs& args);
Status cpu_batch_norm_inference(const KernelContext& context, const BatchNormInferenceArgs& args);
Status cpu_batch_norm_backward(const KernelContext& context, const BatchNormBackwardArgs& args);

Status cpu_relu_forward(const KernelContext& context, const UnaryArgs& args);
Status cpu_relu_backward(const KernelContext& context, const ActivationBackwardArgs& args);
Status cpu_add_forward(const KernelContext& context, const AddArgs& args);
Status cpu_copy_forward(const KernelContext& context, const UnaryArgs& args);
Status cpu_gelu_forward(const KernelContext& context, const UnaryArgs& args);
Status cpu_gelu_backward(const KernelContext& context, const ActivationBackwardArgs& args);
Status cpu_move(const KernelContext& context, const UnaryArgs& args);

Status cpu_max_pool_forward(const KernelContext& context, const MaxPoolForwardArgs& args);
Status cpu_max_pool_backward(const KernelContext& context, const MaxPoolBackwardArgs& args);
Status cpu_global_pool_forward(const KernelContext& context, const GlobalPoolArgs& args);
Status cpu_global_pool_backward(const KernelContext& context, const GlobalPoolArgs& args);

Status cpu_linear_forward(const KernelContext& context, const LinearForwardArgs& args);
Status cpu_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgs& args);
Status cpu_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgs& args);
Status cpu_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgs& args);

Status cpu_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgs& args);
Status cpu_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgs& args);

Status cpu_embedding_forward(const KernelContext& context, const EmbeddingForwardArgs& args);
Status cpu_embedding_backward(const KernelContext& context, const EmbeddingBackwardArgs& args);

Status cpu_attention_forward(const KernelContext& context, const AttentionForwardArgs& args);
Status cpu_attention_backward(const KernelContext& context, const AttentionBackwardArgs& args);

Status cpu_dropout(const KernelContext& context, const DropoutArgs& args);

Status cpu_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgs& args);
Status cpu_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgs& args);

Status cpu_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args);
Status cpu_grad_norm_finish(const KernelContext& context, const GradNormFinishArgs& args);
Status cpu_sgd_update(const KernelContext& context, const SgdArgs& args);
Status cpu_adamw_update(const KernelContext& context, const AdamWArgs& args);

}  // namespace reprise
