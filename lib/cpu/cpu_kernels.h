// Declares every CPU kernel, and adds the kernels to a backend's table. The contract of each kernel
// is its argument struct in lib/ops.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/cpu_size.h"

// Instantiates a kernel for every storage type of activations, in the file that defines the kernel.
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
Status cpu_batch_norm_backward_data(const KernelContext& context, const BatchNormBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cpu_group_norm_forward(const KernelContext& context, const GroupNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_group_norm_backward(const KernelContext& context, const GroupNormBackwardArgsOf<Stored>& args);

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
Status cpu_swiglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args);
template <typename Stored>
Status cpu_swiglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_geglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args);
template <typename Stored>
Status cpu_geglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_cap_forward(const KernelContext& context, const CapArgsOf<Stored>& args);
template <typename Stored>
Status cpu_unary_forward(const KernelContext& context, const UnaryForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_unary_backward(const KernelContext& context, const UnaryBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_multiply(const KernelContext& context, const BroadcastArgsOf<Stored>& args);
template <typename Stored>
Status cpu_broadcast_add(const KernelContext& context, const BroadcastArgsOf<Stored>& args);
template <typename Stored>
Status cpu_broadcast_sum(const KernelContext& context, const BroadcastSumArgsOf<Stored>& args);
template <typename Stored>
Status cpu_learned_forward(const KernelContext& context, const LearnedForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_learned_backward(const KernelContext& context, const LearnedBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_learned_rows_forward(const KernelContext& context, const LearnedRowsForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_learned_rows_backward(const KernelContext& context, const LearnedRowsBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_take_box(const KernelContext& context, const TakeBoxArgsOf<Stored>& args);
template <typename Stored>
Status cpu_put_box(const KernelContext& context, const PutBoxArgsOf<Stored>& args);
template <typename Stored>
Status cpu_transpose(const KernelContext& context, const TransposeArgsOf<Stored>& args);
template <typename Stored>
Status cpu_softmax_forward(const KernelContext& context, const SoftmaxForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_softmax_backward(const KernelContext& context, const SoftmaxBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_product_forward(const KernelContext& context, const ProductArgsOf<Stored>& args);
template <typename Stored>
Status cpu_resize_forward(const KernelContext& context, const ResizeForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_resize_backward(const KernelContext& context, const ResizeBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_concat_forward(const KernelContext& context, const ConcatArgsOf<Stored>& args);
template <typename Stored>
Status cpu_move(const KernelContext& context, const UnaryArgsOf<Stored>& args);

template <typename Stored>
Status cpu_max_pool_forward(const KernelContext& context, const MaxPoolForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_max_pool_backward(const KernelContext& context, const MaxPoolBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_avg_pool_forward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args);
template <typename Stored>
Status cpu_avg_pool_backward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args);
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

// Computes what the kernels above compute, on a small core, with the same contracts
// (conv_small.cpp, linear_small.cpp, loss_head_small.cpp).
template <typename Stored>
Status cpu_small_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args);
template <typename Stored>
Status cpu_small_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args);

template <typename Stored>
Status cpu_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_rms_norm_forward(const KernelContext& context, const RmsNormForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_rms_norm_backward(const KernelContext& context, const RmsNormBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_embedding_forward(const KernelContext& context, const EmbeddingForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_embedding_backward(const KernelContext& context, const EmbeddingBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_attention_forward(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_attention_backward(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_attention_decode(const KernelContext& context, const AttentionDecodeArgsOf<Stored>& args);

template <typename Stored>
Status cpu_rope_forward(const KernelContext& context, const RopeForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_rope_backward(const KernelContext& context, const RopeBackwardArgsOf<Stored>& args);

Status cpu_dora_norms(const KernelContext& context, const DoraNormsArgs& args);
template <typename Stored>
Status cpu_dora_forward(const KernelContext& context, const DoraForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_dora_backward(const KernelContext& context, const DoraBackwardArgsOf<Stored>& args);

template <typename Stored>
Status cpu_dropout(const KernelContext& context, const DropoutArgsOf<Stored>& args);

template <typename Stored>
Status cpu_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args);

template <typename Stored>
Status cpu_target_loss_backward(const KernelContext& context, const TargetLossBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_target_loss_evaluate(const KernelContext& context, const TargetLossEvaluateArgsOf<Stored>& args);
template <typename Stored>
Status cpu_class_loss_backward(const KernelContext& context, const ClassLossBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_class_loss_evaluate(const KernelContext& context, const ClassLossEvaluateArgsOf<Stored>& args);
template <typename Stored>
Status cpu_pair_loss_backward(const KernelContext& context, const PairLossBackwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_pair_loss_evaluate(const KernelContext& context, const PairLossEvaluateArgsOf<Stored>& args);

Status cpu_preference_backward(const KernelContext& context, const PreferenceBackwardArgs& args);
Status cpu_preference_evaluate(const KernelContext& context, const PreferenceEvaluateArgs& args);

Status cpu_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args);
Status cpu_grad_norm_finish(const KernelContext& context, const GradNormFinishArgs& args);
// Updates parameters. If kBlocks is false, parameters and moments must all be f32.
template <bool kBlocks = true>
Status cpu_sgd_update(const KernelContext& context, const SgdArgs& args);
template <bool kBlocks = true>
Status cpu_adamw_update(const KernelContext& context, const AdamWArgs& args);
template <bool kBlocks = true>
Status cpu_lion_update(const KernelContext& context, const LionArgs& args);
Status cpu_adafactor_update(const KernelContext& context, const AdafactorArgs& args);
Status cpu_apollo_update(const KernelContext& context, const ApolloArgs& args);
Status cpu_muon_update(const KernelContext& context, const MuonArgs& args);

// Adds the kernels that differ between the sizes of core to `table`, for activations of type
// Stored. `table` has the function set() of Backend.
template <CpuSize kSize, typename Stored, typename Table>
constexpr void add_cpu_products(Table& table) {
  if constexpr (kSize == CpuSize::kSmall) {
    table.template set<ConvForward, Stored, cpu_small_conv_forward<Stored>>();
    table.template set<ConvBackwardData, Stored, cpu_small_conv_backward_data<Stored>>();
    table.template set<ConvTransposeForward, Stored, cpu_small_conv_backward_data<Stored>>();
    table.template set<ConvBackwardWeight, Stored, cpu_small_conv_backward_weight<Stored>>();
    table.template set<NormConvForward, Stored, cpu_small_conv_forward<Stored>>();
    table.template set<NormConvBackwardWeight, Stored, cpu_small_conv_backward_weight<Stored>>();
    table.template set<LinearForward, Stored, cpu_small_linear_forward<Stored>>();
    table.template set<LinearBackwardData, Stored, cpu_small_linear_backward_data<Stored>>();
    table.template set<LinearBackwardWeight, Stored, cpu_small_linear_backward_weight<Stored>>();
    table.template set<LossHeadBackward, Stored, cpu_small_loss_head_backward<Stored>>();
    table.template set<LossHeadForward, Stored, cpu_small_loss_head_forward<Stored>>();
    table.template set<LossHeadEvaluate, Stored, cpu_small_loss_head_evaluate<Stored>>();
  } else {
    table.template set<ConvForward, Stored, cpu_conv_forward<Stored>>();
    table.template set<ConvBackwardData, Stored, cpu_conv_backward_data<Stored>>();
    table.template set<ConvTransposeForward, Stored, cpu_conv_backward_data<Stored>>();
    table.template set<ConvBackwardWeight, Stored, cpu_conv_backward_weight<Stored>>();
    table.template set<NormConvForward, Stored, cpu_conv_forward<Stored>>();
    table.template set<NormConvBackwardWeight, Stored, cpu_conv_backward_weight<Stored>>();
    table.template set<LinearForward, Stored, cpu_linear_forward<Stored>>();
    table.template set<LinearBackwardData, Stored, cpu_linear_backward_data<Stored>>();
    table.template set<LinearBackwardWeight, Stored, cpu_linear_backward_weight<Stored>>();
    table.template set<LossHeadBackward, Stored, cpu_loss_head_backward<Stored>>();
    table.template set<LossHeadForward, Stored, cpu_loss_head_forward<Stored>>();
    table.template set<LossHeadEvaluate, Stored, cpu_loss_head_evaluate<Stored>>();
  }
}
template <typename Stored, typename Table>
constexpr void add_cpu_activation_kernels(Table& table) {
  table.template set<BatchNormStatistics, Stored, cpu_batch_norm_statistics<Stored>>();
  table.template set<BatchNormForward, Stored, cpu_batch_norm_forward<Stored>>();
  table.template set<BatchNormInference, Stored, cpu_batch_norm_inference<Stored>>();
  table.template set<BatchNormBackward, Stored, cpu_batch_norm_backward<Stored>>();
  table.template set<BatchNormBackwardData, Stored, cpu_batch_norm_backward_data<Stored>>();
  table.template set<NormReluBackward, Stored, cpu_batch_norm_backward<Stored>>();
  table.template set<NormAddReluForward, Stored, cpu_norm_add_relu_forward<Stored>>();
  table.template set<GroupNormForward, Stored, cpu_group_norm_forward<Stored>>();
  table.template set<GroupNormBackward, Stored, cpu_group_norm_backward<Stored>>();
  table.template set<ReluForward, Stored, cpu_relu_forward<Stored>>();
  table.template set<ReluBackward, Stored, cpu_relu_backward<Stored>>();
  table.template set<AddForward, Stored, cpu_add_forward<Stored>>();
  table.template set<CopyForward, Stored, cpu_copy_forward<Stored>>();
  table.template set<GeluForward, Stored, cpu_gelu_forward<Stored>>();
  table.template set<GeluBackward, Stored, cpu_gelu_backward<Stored>>();
  table.template set<SwigluForward, Stored, cpu_swiglu_forward<Stored>>();
  table.template set<SwigluBackward, Stored, cpu_swiglu_backward<Stored>>();
  table.template set<GegluForward, Stored, cpu_geglu_forward<Stored>>();
  table.template set<GegluBackward, Stored, cpu_geglu_backward<Stored>>();
  table.template set<CapForward, Stored, cpu_cap_forward<Stored>>();
  table.template set<UnaryForward, Stored, cpu_unary_forward<Stored>>();
  table.template set<UnaryBackward, Stored, cpu_unary_backward<Stored>>();
  table.template set<MultiplyForward, Stored, cpu_multiply<Stored>>();
  table.template set<MultiplyBackwardData, Stored, cpu_multiply<Stored>>();
  table.template set<MultiplyBackwardWeight, Stored, cpu_broadcast_sum<Stored>>();
  table.template set<BroadcastAddForward, Stored, cpu_broadcast_add<Stored>>();
  table.template set<BroadcastAddBackward, Stored, cpu_broadcast_sum<Stored>>();
  table.template set<LearnedForward, Stored, cpu_learned_forward<Stored>>();
  table.template set<LearnedBackward, Stored, cpu_learned_backward<Stored>>();
  table.template set<LearnedRowsForward, Stored, cpu_learned_rows_forward<Stored>>();
  table.template set<LearnedRowsBackward, Stored, cpu_learned_rows_backward<Stored>>();
  table.template set<ColumnsForward, Stored, cpu_take_box<Stored>>();
  table.template set<ColumnsBackward, Stored, cpu_put_box<Stored>>();
  table.template set<PadForward, Stored, cpu_put_box<Stored>>();
  table.template set<PadBackward, Stored, cpu_take_box<Stored>>();
  table.template set<ConcatForward, Stored, cpu_concat_forward<Stored>>();
  table.template set<SoftmaxForward, Stored, cpu_softmax_forward<Stored>>();
  table.template set<SoftmaxBackward, Stored, cpu_softmax_backward<Stored>>();
  table.template set<ProductForward, Stored, cpu_product_forward<Stored>>();
  table.template set<ResizeForward, Stored, cpu_resize_forward<Stored>>();
  table.template set<ResizeBackward, Stored, cpu_resize_backward<Stored>>();
  table.template set<TransposeForward, Stored, cpu_transpose<Stored>>();
  table.template set<TransposeBackward, Stored, cpu_transpose<Stored>>();
  table.template set<MoveForward, Stored, cpu_move<Stored>>();
  table.template set<ReshapeForward, Stored, cpu_move<Stored>>();
  table.template set<MaxPoolForward, Stored, cpu_max_pool_forward<Stored>>();
  table.template set<MaxPoolBackward, Stored, cpu_max_pool_backward<Stored>>();
  table.template set<AvgPoolForward, Stored, cpu_avg_pool_forward<Stored>>();
  table.template set<AvgPoolBackward, Stored, cpu_avg_pool_backward<Stored>>();
  table.template set<GlobalPoolForward, Stored, cpu_global_pool_forward<Stored>>();
  table.template set<GlobalPoolBackward, Stored, cpu_global_pool_backward<Stored>>();
  table.template set<LinearBackwardBias, Stored, cpu_linear_backward_bias<Stored>>();
  table.template set<LayerNormForward, Stored, cpu_layer_norm_forward<Stored>>();
  table.template set<LayerNormBackward, Stored, cpu_layer_norm_backward<Stored>>();
  table.template set<RmsNormForward, Stored, cpu_rms_norm_forward<Stored>>();
  table.template set<RmsNormBackward, Stored, cpu_rms_norm_backward<Stored>>();
  table.template set<EmbeddingForward, Stored, cpu_embedding_forward<Stored>>();
  table.template set<EmbeddingBackward, Stored, cpu_embedding_backward<Stored>>();
  table.template set<AttentionForward, Stored, cpu_attention_forward<Stored>>();
  table.template set<AttentionBackward, Stored, cpu_attention_backward<Stored>>();
  table.template set<AttentionDecode, Stored, cpu_attention_decode<Stored>>();
  table.template set<RopeForward, Stored, cpu_rope_forward<Stored>>();
  table.template set<RopeBackward, Stored, cpu_rope_backward<Stored>>();
  table.template set<DoraForward, Stored, cpu_dora_forward<Stored>>();
  table.template set<DoraBackward, Stored, cpu_dora_backward<Stored>>();
  table.template set<DropoutForward, Stored, cpu_dropout<Stored>>();
  table.template set<DropoutBackward, Stored, cpu_dropout<Stored>>();
  table.template set<TargetLossBackward, Stored, cpu_target_loss_backward<Stored>>();
  table.template set<TargetLossEvaluate, Stored, cpu_target_loss_evaluate<Stored>>();
  table.template set<ClassLossBackward, Stored, cpu_class_loss_backward<Stored>>();
  table.template set<ClassLossEvaluate, Stored, cpu_class_loss_evaluate<Stored>>();
  table.template set<PairLossBackward, Stored, cpu_pair_loss_backward<Stored>>();
  table.template set<PairLossEvaluate, Stored, cpu_pair_loss_evaluate<Stored>>();
}

template <CpuSize kSize, bool kBlocks = true, typename Table>
constexpr void add_cpu_kernels(Table& table) {
  add_cpu_products<kSize, float>(table);
  add_cpu_products<kSize, Bf16>(table);
  add_cpu_activation_kernels<float>(table);
  add_cpu_activation_kernels<Bf16>(table);
  table.template set<BatchNormRunning, float, cpu_batch_norm_running>();
  table.template set<GradNormReduce, float, cpu_grad_norm_reduce>();
  table.template set<GradNormFinish, float, cpu_grad_norm_finish>();
  table.template set<SgdUpdate, float, cpu_sgd_update<kBlocks>>();
  table.template set<AdamWUpdate, float, cpu_adamw_update<kBlocks>>();
  table.template set<LionUpdate, float, cpu_lion_update<kBlocks>>();
  table.template set<AdafactorUpdate, float, cpu_adafactor_update>();
  table.template set<ApolloUpdate, float, cpu_apollo_update>();
  table.template set<MuonUpdate, float, cpu_muon_update>();
  table.template set<DoraNorms, float, cpu_dora_norms>();
  table.template set<PreferenceBackward, float, cpu_preference_backward>();
  table.template set<PreferenceEvaluate, float, cpu_preference_evaluate>();
}

}  // namespace reprise
