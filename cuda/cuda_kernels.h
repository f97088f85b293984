// The host function of every CUDA kernel, and the table that maps a row's op to its function. The
// contract of each function is its argument struct in lib/ops. Each family of kernels has a file of
// its own. This header declares the functions of all families, because the table needs them.
#pragma once

#include "lib/backend.h"

// Instantiates a kernel for both storage types of activations, in the file that defines it.
#define REPRISE_CUDA_INSTANTIATE(kernel, Args)                          \
  template Status kernel(const KernelContext&, const Args##Of<float>&); \
  template Status kernel(const KernelContext&, const Args##Of<Bf16>&);

namespace reprise {

// Each function enqueues its work on context.queue (a cudaStream_t) and returns without waiting for
// it. Pointers are device pointers, aligned to kAlignment as all slots are. Any M and any C are
// valid. A failed launch returns kBackend with the cudaError_t as detail.

template <typename Stored>
Status cuda_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cuda_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args);
template <typename Stored>
Status cuda_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args);

// Computes the convolution of x, or of relu(norm(x)) if args.norm is set.
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
Status cuda_attention_decode(const KernelContext& context, const AttentionDecodeArgsOf<Stored>& args);

template <typename Stored>
Status cuda_batch_norm_statistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args);
Status cuda_batch_norm_running(const KernelContext& context, const BatchNormRunningArgs& args);
template <typename Stored>
Status cuda_batch_norm_forward(const KernelContext& context, const BatchNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_norm_add_relu_forward(const KernelContext& context, const NormAddReluArgsOf<Stored>& args);
template <typename Stored>
Status cuda_batch_norm_inference(const KernelContext& context, const BatchNormInferenceArgsOf<Stored>& args);
template <typename Stored>
Status cuda_batch_norm_backward(const KernelContext& context, const BatchNormBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_batch_norm_backward_data(const KernelContext& context, const BatchNormBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cuda_group_norm_forward(const KernelContext& context, const GroupNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_group_norm_backward(const KernelContext& context, const GroupNormBackwardArgsOf<Stored>& args);

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
Status cuda_swiglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args);
template <typename Stored>
Status cuda_swiglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_geglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args);
template <typename Stored>
Status cuda_geglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_cap_forward(const KernelContext& context, const CapArgsOf<Stored>& args);
template <typename Stored>
Status cuda_unary_forward(const KernelContext& context, const UnaryForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_unary_backward(const KernelContext& context, const UnaryBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_multiply(const KernelContext& context, const BroadcastArgsOf<Stored>& args);
template <typename Stored>
Status cuda_broadcast_add(const KernelContext& context, const BroadcastArgsOf<Stored>& args);
template <typename Stored>
Status cuda_broadcast_sum(const KernelContext& context, const BroadcastSumArgsOf<Stored>& args);
template <typename Stored>
Status cuda_learned_forward(const KernelContext& context, const LearnedForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_learned_backward(const KernelContext& context, const LearnedBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_learned_rows_forward(const KernelContext& context, const LearnedRowsForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_learned_rows_backward(const KernelContext& context, const LearnedRowsBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_take_box(const KernelContext& context, const TakeBoxArgsOf<Stored>& args);
template <typename Stored>
Status cuda_put_box(const KernelContext& context, const PutBoxArgsOf<Stored>& args);
template <typename Stored>
Status cuda_transpose(const KernelContext& context, const TransposeArgsOf<Stored>& args);
template <typename Stored>
Status cuda_softmax_forward(const KernelContext& context, const SoftmaxForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_softmax_backward(const KernelContext& context, const SoftmaxBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_product_forward(const KernelContext& context, const ProductArgsOf<Stored>& args);
template <typename Stored>
Status cuda_resize_forward(const KernelContext& context, const ResizeForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_resize_backward(const KernelContext& context, const ResizeBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_concat_forward(const KernelContext& context, const ConcatArgsOf<Stored>& args);
template <typename Stored>
Status cuda_move(const KernelContext& context, const UnaryArgsOf<Stored>& args);

template <typename Stored>
Status cuda_max_pool_forward(const KernelContext& context, const MaxPoolForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_max_pool_backward(const KernelContext& context, const MaxPoolBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_avg_pool_forward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args);
template <typename Stored>
Status cuda_avg_pool_backward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args);
template <typename Stored>
Status cuda_global_pool_forward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args);
template <typename Stored>
Status cuda_global_pool_backward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args);

template <typename Stored>
Status cuda_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_rms_norm_forward(const KernelContext& context, const RmsNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_rms_norm_backward(const KernelContext& context, const RmsNormBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cuda_embedding_forward(const KernelContext& context, const EmbeddingForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_embedding_backward(const KernelContext& context, const EmbeddingBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cuda_rope_forward(const KernelContext& context, const RopeForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_rope_backward(const KernelContext& context, const RopeBackwardArgsOf<Stored>& args);

Status cuda_dora_norms(const KernelContext& context, const DoraNormsArgs& args);
template <typename Stored>
Status cuda_dora_forward(const KernelContext& context, const DoraForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_dora_backward(const KernelContext& context, const DoraBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cuda_dropout(const KernelContext& context, const DropoutArgsOf<Stored>& args);

template <typename Stored>
Status cuda_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args);

template <typename Stored>
Status cuda_target_loss_backward(const KernelContext& context, const TargetLossBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_target_loss_evaluate(const KernelContext& context, const TargetLossEvaluateArgsOf<Stored>& args);
template <typename Stored>
Status cuda_class_loss_backward(const KernelContext& context, const ClassLossBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_class_loss_evaluate(const KernelContext& context, const ClassLossEvaluateArgsOf<Stored>& args);
template <typename Stored>
Status cuda_pair_loss_backward(const KernelContext& context, const PairLossBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cuda_pair_loss_evaluate(const KernelContext& context, const PairLossEvaluateArgsOf<Stored>& args);

Status cuda_preference_backward(const KernelContext& context, const PreferenceBackwardArgs& args);
Status cuda_preference_evaluate(const KernelContext& context, const PreferenceEvaluateArgs& args);

Status cuda_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args);
Status cuda_grad_norm_finish(const KernelContext& context, const GradNormFinishArgs& args);
Status cuda_sgd_update(const KernelContext& context, const SgdArgs& args);
Status cuda_adamw_update(const KernelContext& context, const AdamWArgs& args);
Status cuda_lion_update(const KernelContext& context, const LionArgs& args);
Status cuda_adafactor_update(const KernelContext& context, const AdafactorArgs& args);
Status cuda_apollo_update(const KernelContext& context, const ApolloArgs& args);
Status cuda_muon_update(const KernelContext& context, const MuonArgs& args);

// Adds the kernels over activations that are stored as `Stored`, except products.
template <typename Stored>
constexpr void add_cuda_activation_kernels(Backend& table) {
  table.set<BatchNormStatistics, Stored, cuda_batch_norm_statistics<Stored>>();
  table.set<BatchNormForward, Stored, cuda_batch_norm_forward<Stored>>();
  table.set<BatchNormInference, Stored, cuda_batch_norm_inference<Stored>>();
  table.set<BatchNormBackward, Stored, cuda_batch_norm_backward<Stored>>();
  table.set<BatchNormBackwardData, Stored, cuda_batch_norm_backward_data<Stored>>();
  table.set<NormReluBackward, Stored, cuda_batch_norm_backward<Stored>>();
  table.set<NormAddReluForward, Stored, cuda_norm_add_relu_forward<Stored>>();
  table.set<GroupNormForward, Stored, cuda_group_norm_forward<Stored>>();
  table.set<GroupNormBackward, Stored, cuda_group_norm_backward<Stored>>();
  table.set<ReluForward, Stored, cuda_relu_forward<Stored>>();
  table.set<ReluBackward, Stored, cuda_relu_backward<Stored>>();
  table.set<AddForward, Stored, cuda_add_forward<Stored>>();
  table.set<CopyForward, Stored, cuda_copy_forward<Stored>>();
  table.set<GeluForward, Stored, cuda_gelu_forward<Stored>>();
  table.set<GeluBackward, Stored, cuda_gelu_backward<Stored>>();
  table.set<SwigluForward, Stored, cuda_swiglu_forward<Stored>>();
  table.set<SwigluBackward, Stored, cuda_swiglu_backward<Stored>>();
  table.set<GegluForward, Stored, cuda_geglu_forward<Stored>>();
  table.set<GegluBackward, Stored, cuda_geglu_backward<Stored>>();
  table.set<CapForward, Stored, cuda_cap_forward<Stored>>();
  table.set<UnaryForward, Stored, cuda_unary_forward<Stored>>();
  table.set<UnaryBackward, Stored, cuda_unary_backward<Stored>>();
  table.set<MultiplyForward, Stored, cuda_multiply<Stored>>();
  table.set<MultiplyBackwardData, Stored, cuda_multiply<Stored>>();
  table.set<MultiplyBackwardWeight, Stored, cuda_broadcast_sum<Stored>>();
  table.set<BroadcastAddForward, Stored, cuda_broadcast_add<Stored>>();
  table.set<BroadcastAddBackward, Stored, cuda_broadcast_sum<Stored>>();
  table.set<LearnedForward, Stored, cuda_learned_forward<Stored>>();
  table.set<LearnedBackward, Stored, cuda_learned_backward<Stored>>();
  table.set<LearnedRowsForward, Stored, cuda_learned_rows_forward<Stored>>();
  table.set<LearnedRowsBackward, Stored, cuda_learned_rows_backward<Stored>>();
  table.set<ColumnsForward, Stored, cuda_take_box<Stored>>();
  table.set<ColumnsBackward, Stored, cuda_put_box<Stored>>();
  table.set<PadForward, Stored, cuda_put_box<Stored>>();
  table.set<PadBackward, Stored, cuda_take_box<Stored>>();
  table.set<ConcatForward, Stored, cuda_concat_forward<Stored>>();
  table.set<SoftmaxForward, Stored, cuda_softmax_forward<Stored>>();
  table.set<SoftmaxBackward, Stored, cuda_softmax_backward<Stored>>();
  table.set<ProductForward, Stored, cuda_product_forward<Stored>>();
  table.set<ResizeForward, Stored, cuda_resize_forward<Stored>>();
  table.set<ResizeBackward, Stored, cuda_resize_backward<Stored>>();
  table.set<TransposeForward, Stored, cuda_transpose<Stored>>();
  table.set<TransposeBackward, Stored, cuda_transpose<Stored>>();
  table.set<MoveForward, Stored, cuda_move<Stored>>();
  table.set<ReshapeForward, Stored, cuda_move<Stored>>();
  table.set<MaxPoolForward, Stored, cuda_max_pool_forward<Stored>>();
  table.set<MaxPoolBackward, Stored, cuda_max_pool_backward<Stored>>();
  table.set<AvgPoolForward, Stored, cuda_avg_pool_forward<Stored>>();
  table.set<AvgPoolBackward, Stored, cuda_avg_pool_backward<Stored>>();
  table.set<GlobalPoolForward, Stored, cuda_global_pool_forward<Stored>>();
  table.set<GlobalPoolBackward, Stored, cuda_global_pool_backward<Stored>>();
  table.set<LayerNormForward, Stored, cuda_layer_norm_forward<Stored>>();
  table.set<LayerNormBackward, Stored, cuda_layer_norm_backward<Stored>>();
  table.set<RmsNormForward, Stored, cuda_rms_norm_forward<Stored>>();
  table.set<RmsNormBackward, Stored, cuda_rms_norm_backward<Stored>>();
  table.set<EmbeddingForward, Stored, cuda_embedding_forward<Stored>>();
  table.set<EmbeddingBackward, Stored, cuda_embedding_backward<Stored>>();
  table.set<RopeForward, Stored, cuda_rope_forward<Stored>>();
  table.set<RopeBackward, Stored, cuda_rope_backward<Stored>>();
  table.set<DoraForward, Stored, cuda_dora_forward<Stored>>();
  table.set<DoraBackward, Stored, cuda_dora_backward<Stored>>();
  table.set<DropoutForward, Stored, cuda_dropout<Stored>>();
  table.set<DropoutBackward, Stored, cuda_dropout<Stored>>();
  table.set<TargetLossBackward, Stored, cuda_target_loss_backward<Stored>>();
  table.set<TargetLossEvaluate, Stored, cuda_target_loss_evaluate<Stored>>();
  table.set<ClassLossBackward, Stored, cuda_class_loss_backward<Stored>>();
  table.set<ClassLossEvaluate, Stored, cuda_class_loss_evaluate<Stored>>();
  table.set<PairLossBackward, Stored, cuda_pair_loss_backward<Stored>>();
  table.set<PairLossEvaluate, Stored, cuda_pair_loss_evaluate<Stored>>();
}

// Adds the products over activations that are stored as `Stored`.
template <typename Stored>
constexpr void add_cuda_products(Backend& table) {
  table.set<LinearForward, Stored, cuda_linear_forward<Stored>>();
  table.set<LinearBackwardData, Stored, cuda_linear_backward_data<Stored>>();
  table.set<LinearBackwardWeight, Stored, cuda_linear_backward_weight<Stored>>();
  table.set<LinearBackwardBias, Stored, cuda_linear_backward_bias<Stored>>();
  table.set<ConvForward, Stored, cuda_conv_forward<Stored>>();
  table.set<ConvBackwardData, Stored, cuda_conv_backward_data<Stored>>();
  table.set<ConvTransposeForward, Stored, cuda_conv_backward_data<Stored>>();
  table.set<ConvBackwardWeight, Stored, cuda_conv_backward_weight<Stored>>();
  table.set<NormConvForward, Stored, cuda_conv_forward<Stored>>();
  table.set<NormConvBackwardWeight, Stored, cuda_conv_backward_weight<Stored>>();
  table.set<AttentionForward, Stored, cuda_attention_forward<Stored>>();
  table.set<AttentionBackward, Stored, cuda_attention_backward<Stored>>();
  table.set<AttentionDecode, Stored, cuda_attention_decode<Stored>>();
  table.set<LossHeadBackward, Stored, cuda_loss_head_backward<Stored>>();
  table.set<LossHeadForward, Stored, cuda_loss_head_forward<Stored>>();
  table.set<LossHeadEvaluate, Stored, cuda_loss_head_evaluate<Stored>>();
}

constexpr void add_cuda_kernels(Backend& table) {
  add_cuda_products<float>(table);
  add_cuda_products<Bf16>(table);
  add_cuda_activation_kernels<float>(table);
  add_cuda_activation_kernels<Bf16>(table);
  table.set<BatchNormRunning, float, cuda_batch_norm_running>();
  table.set<GradNormReduce, float, cuda_grad_norm_reduce>();
  table.set<GradNormFinish, float, cuda_grad_norm_finish>();
  table.set<SgdUpdate, float, cuda_sgd_update>();
  table.set<AdamWUpdate, float, cuda_adamw_update>();
  table.set<LionUpdate, float, cuda_lion_update>();
  table.set<AdafactorUpdate, float, cuda_adafactor_update>();
  table.set<ApolloUpdate, float, cuda_apollo_update>();
  table.set<MuonUpdate, float, cuda_muon_update>();
  table.set<DoraNorms, float, cuda_dora_norms>();
  table.set<PreferenceBackward, float, cuda_preference_backward>();
  table.set<PreferenceEvaluate, float, cuda_preference_evaluate>();
}

}  // namespace reprise
