// The rules of the CPU backends, one for each size of core. Both backends have every kernel of
// lib/op.h, and the transfers, which carriers.h executes.
#pragma once

#include "lib/cpu/attention/attention_rules.h"
#include "lib/cpu/attention/rope_rules.h"
#include "lib/cpu/gemm/linear_rules.h"
#include "lib/cpu/gemm/product_rules.h"
#include "lib/cpu/loss/loss_head_rules.h"
#include "lib/cpu/loss/loss_rules.h"
#include "lib/cpu/loss/pair_loss_rules.h"
#include "lib/cpu/norm/batch_norm_rules.h"
#include "lib/cpu/norm/layer_norm_rules.h"
#include "lib/cpu/pointwise/broadcast_rules.h"
#include "lib/cpu/pointwise/dora_rules.h"
#include "lib/cpu/pointwise/embedding_rules.h"
#include "lib/cpu/small/conv_small_rules.h"
#include "lib/cpu/small/linear_small_rules.h"
#include "lib/cpu/small/loss_head_small_rules.h"
#include "lib/cpu/update/matrix_update_rules.h"
#include "lib/same_state.h"
#include "lib/state_format.h"

namespace reprise {

// Stack bytes that a kernel on a small core may use in addition to those that its rule states;
// tests/ops/stack_test.cpp measures them.
constexpr uint64_t kSmallFrameStackBytes = 3840;

// Returns kBytes: the stack rule of a kernel whose arrays on the stack have a fixed size. Only
// small cores need such rules. On a large core the bytes for every kernel's frame cover these
// arrays.
template <uint64_t kBytes>
constexpr uint64_t fixed_bytes(const ShapedCall&) {
  return kBytes;
}
// Returns the stack bytes of an update: one block for each parameter or moment that is not f32.
constexpr uint64_t blocks_of_state(const ShapedCall& c) {
  const uint32_t gradients = c.op == Op::kAdamW ? uint32_t{AdamWUpdate::kGradients} : uint32_t{SgdUpdate::kGradients};
  static_assert(uint32_t{SgdUpdate::kGradients} == LionUpdate::kGradients);
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < gradients; ++i) blocks += c.has(i) && c[i].dtype != DType::kF32;
  return blocks == 0 ? 0 : stack_buffer_bytes(blocks * kStateBlock * sizeof(float));
}
constexpr void state_fixed_arrays(BackendRules& rules) {
  rules.of<LayerNormBackward>().stack_bytes = rules.of<RmsNormBackward>().stack_bytes = fixed_bytes<2048>;
  rules.of<AttentionDecode>().stack_bytes = fixed_bytes<2560>;
  rules.of<TransposeForward>().stack_bytes = rules.of<TransposeBackward>().stack_bytes = fixed_bytes<2048>;
  rules.of<TargetLossBackward>().stack_bytes = rules.of<TargetLossEvaluate>().stack_bytes = fixed_bytes<2048>;
  rules.of<DoraNorms>().stack_bytes = fixed_bytes<1536>;
  rules.of<SgdUpdate>().stack_bytes = rules.of<AdamWUpdate>().stack_bytes = rules.of<LionUpdate>().stack_bytes =
      blocks_of_state;
}

// Vector levels for which kernels are built, by the names of vector_level.h. Kernels that multiply
// bf16 activations are built for more levels.
inline constexpr const char* kCpuLevels = "baseline, neon, avx2, avx512";
inline constexpr const char* kCpuLevelsOfProducts =
    "baseline, neon, avx2, avx512, neon+bf16, avx512+bf16, avx512+bf16+amx";
constexpr void name_levels(BackendRules& rules, CpuSize size) {
  for (KernelRules& kernel : rules.kernels) kernel.levels = size == CpuSize::kSmall ? "baseline" : kCpuLevels;
  if (size == CpuSize::kSmall) return;
  const auto multiply_bf16 = [&rules]<typename... K>(TypeList<K...>) {
    ((rules.of<K>().levels = kCpuLevelsOfProducts), ...);
  };
  multiply_bf16(TypeList<LinearForward, LinearBackwardData, LinearBackwardWeight, ConvForward, ConvBackwardData,
                         ConvBackwardWeight, ConvTransposeForward, NormConvForward, NormConvBackwardWeight,
                         LossHeadForward, LossHeadBackward, LossHeadEvaluate, AttentionForward, AttentionBackward>{});
}

template <CpuSize kSize>
constexpr BackendRules make_cpu_rules(const char* name, const char* constant) {
  BackendRules rules = {.name = name, .header = "lib/cpu/cpu_rules.h", .constant = constant};
  rules.have(Kernels{});
  rules.of<EmbeddingForward>().weights = kEveryWeight;
  if (kSize == CpuSize::kSmall) {
    rules.frame_stack_bytes = kSmallFrameStackBytes;
    state_fixed_arrays(rules);
  }
  add_attention_rules<kSize>(rules);
  add_batch_norm_rules(rules);
  add_broadcast_rules<kSize>(rules);
  if (kSize == CpuSize::kSmall) {
    add_small_conv_rules(rules), add_small_linear_rules(rules), add_small_loss_head_rules(rules);
    add_embedding_rules(rules), add_rope_rules(rules);
  } else {
    add_conv_rules(rules), add_linear_rules(rules), add_loss_head_rules(rules);
  }
  add_dora_rules(rules);
  add_layer_norm_rules(rules);
  add_loss_rules(rules);
  add_matrix_update_rules<kSize>(rules);
  add_pair_loss_rules<kSize>(rules);
  add_product_rules<kSize>(rules);
  name_levels(rules, kSize);
  return rules;
}
inline constexpr BackendRules kCpuRules = make_cpu_rules<CpuSize::kLarge>("cpu", "kCpuRules");
inline constexpr BackendRules kCpuSmallRules = make_cpu_rules<CpuSize::kSmall>("cpu-small", "kCpuSmallRules");

// Returns the size of core that the plan is for.
constexpr CpuSize core_of(const Plan& plan) {
  return same_text(plan.backend, kCpuSmallRules.name) ? CpuSize::kSmall : CpuSize::kLarge;
}
constexpr const BackendRules& cpu_rules_of(CpuSize size) {
  return size == CpuSize::kSmall ? kCpuSmallRules : kCpuRules;
}

}  // namespace reprise
