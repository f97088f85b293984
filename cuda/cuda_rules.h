// The rules of the CUDA backends: which kernels they have, and the scratch of each kernel. This
// header needs no CUDA, so any machine can plan for a card.
#pragma once

#include "cuda/attention/attention_rules.h"
#include "cuda/conv/conv_rules.h"
#include "cuda/gemm/linear_rules.h"
#include "cuda/gemm/product_math.h"
#include "cuda/host_share.h"
#include "cuda/loss/loss_head_rules.h"
#include "cuda/loss/loss_rules.h"
#include "cuda/norm/batch_norm_rules.h"
#include "cuda/norm/grad_norm_rules.h"
#include "cuda/norm/layer_norm_rules.h"
#include "cuda/pointwise/broadcast_rules.h"
#include "cuda/pointwise/dora_rules.h"
#include "cuda/update/matrix_update_rules.h"
#include "lib/backend_rules.h"

namespace reprise {

namespace cuda_rules {
template <typename K>
constexpr uint64_t batch_norm_backward(const ShapedCall& c) {
  return cuda_batch_norm_backward_scratch_bytes(c[K::kX].leading_elements(), c[K::kX].last_dimension());
}
template <typename K>
constexpr uint64_t group_norm_partials(const ShapedCall& c) {
  const Tensor& x = c[K::kX];
  return cuda_group_norm_partials_bytes(x.shape[0], uint64_t{x.shape[1]} * x.shape[2], x.shape[3]);
}
}  // namespace cuda_rules

constexpr void add_cuda_batch_norm_rules(BackendRules& rules) {
  rules.have(BatchNormKernels{});
  rules.of<BatchNormStatistics>().scratch_bytes = [](const ShapedCall& c) {
    const Tensor& x = c[BatchNormStatistics::kX];
    return cuda_batch_norm_statistics_scratch_bytes(x.leading_elements(), x.last_dimension());
  };
  rules.of<BatchNormBackward>().scratch_bytes = cuda_rules::batch_norm_backward<BatchNormBackward>;
  rules.of<NormReluBackward>().scratch_bytes = cuda_rules::batch_norm_backward<NormReluBackward>;
  rules.of<GroupNormForward>().scratch_bytes = cuda_rules::group_norm_partials<GroupNormForward>;
  rules.of<GroupNormBackward>().scratch_bytes = [](const ShapedCall& c) {
    const uint64_t coefficients = 2 * c[GroupNormBackward::kMean].elements() * sizeof(float);
    return cuda_rules::group_norm_partials<GroupNormBackward>(c) + coefficients;
  };
}

template <CardSize kCard>
constexpr void add_cuda_layer_norm_rules(BackendRules& rules) {
  rules.have(LayerNormKernels{});
  rules.of<LayerNormBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LayerNormBackward;
    const bool frozen = !c.has(A::kDgamma) && !c.has(A::kDbeta);
    return frozen
               ? 0
               : cuda_layer_norm_backward_scratch_bytes(c[A::kX].leading_elements(), c[A::kX].last_dimension(), kCard);
  };
  rules.of<RmsNormBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = RmsNormBackward;
    return !c.has(A::kDgamma)
               ? 0
               : cuda_rms_norm_backward_scratch_bytes(c[A::kRstd].elements(), c[A::kGamma].elements(), kCard);
  };
}

template <CardSize kCard, ProductMath kMath>
constexpr BackendRules make_cuda_rules(const char* name, const char* constant) {
  BackendRules rules = {.name = name,
                        .header = "cuda/cuda_rules.h",
                        .constant = constant,
                        .headroom_bytes = kCudaHeadroomBytes,
                        .staging_bytes = kCudaStagingBytes};
  add_cuda_linear_rules<kCard, kMath>(rules);
  add_cuda_conv_rules<kCard, kMath>(rules);
  add_cuda_attention_rules(rules);
  add_cuda_batch_norm_rules(rules);
  add_cuda_broadcast_rules(rules);
  add_cuda_dora_rules<kCard>(rules);
  add_cuda_grad_norm_rules(rules);
  add_cuda_layer_norm_rules<kCard>(rules);
  add_cuda_loss_head_rules<kCard, kMath>(rules);
  add_cuda_loss_rules(rules);
  add_cuda_matrix_update_rules<kCard>(rules);
  rules.have(ElementwiseKernels{});
  rules.have(PoolKernels{});
  rules.have(AvgPoolKernels{});
  rules.have(EmbeddingKernels{});
  rules.of<EmbeddingForward>().weights = kEveryWeight;
  rules.have(RopeKernels{});
  rules.have(GegluKernels{});
  rules.have(ColumnsKernels{});
  rules.have(CapKernels{});
  rules.have(UnaryKernels{});
  rules.have(PadKernels{});
  rules.have(ConcatKernels{});
  rules.have(ReshapeKernels{});
  rules.have(TransposeKernels{});
  rules.have(ResizeKernels{});
  rules.have(SoftmaxKernels{});
  rules.have(ProductKernels{});
  rules.have(LearnedKernels{});
  rules.have(LearnedRowsKernels{});
  rules.have(DropoutKernels{});
  rules.have(OptimizerKernels{});
  rules.have(PreferenceKernels{});
  return rules;
}
inline constexpr BackendRules kCudaRules = make_cuda_rules<CardSize::kSmall, ProductMath::kF32>("cuda", "kCudaRules");
inline constexpr BackendRules kCudaLargeRules =
    make_cuda_rules<CardSize::kLarge, ProductMath::kF32>("cuda-large", "kCudaLargeRules");
inline constexpr BackendRules kCudaTf32Rules =
    make_cuda_rules<CardSize::kSmall, ProductMath::kTf32>("cuda+tf32", "kCudaTf32Rules");
inline constexpr BackendRules kCudaLargeTf32Rules =
    make_cuda_rules<CardSize::kLarge, ProductMath::kTf32>("cuda-large+tf32", "kCudaLargeTf32Rules");
inline constexpr BackendRules kCudaBf16x3Rules =
    make_cuda_rules<CardSize::kSmall, ProductMath::kBf16x3>("cuda+bf16x3", "kCudaBf16x3Rules");
inline constexpr BackendRules kCudaLargeBf16x3Rules =
    make_cuda_rules<CardSize::kLarge, ProductMath::kBf16x3>("cuda-large+bf16x3", "kCudaLargeBf16x3Rules");

// One CUDA backend: its rules, and the two choices that decide the bits of its results.
struct CudaTable {
  CardSize size;
  ProductMath math;
  const BackendRules* rules;
};
inline constexpr CudaTable kCudaTables[] = {
    {CardSize::kSmall, ProductMath::kF32, &kCudaRules},
    {CardSize::kLarge, ProductMath::kF32, &kCudaLargeRules},
    {CardSize::kSmall, ProductMath::kTf32, &kCudaTf32Rules},
    {CardSize::kLarge, ProductMath::kTf32, &kCudaLargeTf32Rules},
    {CardSize::kSmall, ProductMath::kBf16x3, &kCudaBf16x3Rules},
    {CardSize::kLarge, ProductMath::kBf16x3, &kCudaLargeBf16x3Rules},
};
constexpr const BackendRules& cuda_rules_of(CardSize size, ProductMath math = ProductMath::kF32) {
  const BackendRules* rules = &kCudaRules;
  for (const CudaTable& table : kCudaTables) {
    if (table.size == size && table.math == math) rules = table.rules;
  }
  return *rules;
}

}  // namespace reprise
