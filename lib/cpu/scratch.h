// The CPU backend's scratch rule: bytes of any kernel from the shapes of its row's arguments.
// Here so that planner, checker and compiler (it is constexpr) share one switch with the kernels.
// It must not know the processor, the number of workers, or any pointer.
#pragma once

#include "lib/cpu/attention_scratch.h"
#include "lib/cpu/batch_norm_scratch.h"
#include "lib/cpu/gemm_scratch.h"
#include "lib/cpu/layer_norm_scratch.h"
#include "lib/plan.h"

namespace reprise {

// `tensors` are the row's arguments in the order of kOps; optional ones, and the scratch itself, may be null.
constexpr uint64_t cpu_scratch_bytes(Op op, Pass pass, const Tensor* const* tensors) {
  switch (op) {
    case Op::kConv:
    case Op::kNormConv:
      if (pass == Pass::kForward) {
        const Tensor& y = *tensors[0];
        const uint64_t statistics = tensors[1] == nullptr ? 0 : output_statistics_scratch_bytes(y.leading_elements(), y.last_dimension());
        return align_up(cpu_conv_forward_scratch_bytes(tensors)) + statistics;
      }
      if (pass == Pass::kBackwardData) return cpu_conv_backward_data_scratch_bytes(tensors);
      return cpu_conv_backward_weight_scratch_bytes(tensors);
    case Op::kBatchNorm:
      if (pass == Pass::kStatistics) {
        return batch_norm_statistics_scratch_bytes(tensors[2]->leading_elements(), tensors[2]->last_dimension());
      }
      if (pass == Pass::kBackward) {
        return batch_norm_backward_scratch_bytes(tensors[3]->leading_elements(), tensors[3]->last_dimension());
      }
      return 0;
    case Op::kNormRelu: return batch_norm_backward_scratch_bytes(tensors[3]->leading_elements(), tensors[3]->last_dimension());
    case Op::kLinear:
      if (pass == Pass::kForward) return cpu_linear_forward_scratch_bytes(tensors);
      if (pass == Pass::kBackwardData) return cpu_linear_backward_data_scratch_bytes(tensors);
      if (pass == Pass::kBackwardWeight) return cpu_linear_backward_weight_scratch_bytes(tensors);
      return cpu_linear_backward_bias_scratch_bytes(tensors);
    case Op::kLayerNorm:
      if (pass == Pass::kForward) return 0;
      return layer_norm_backward_scratch_bytes(tensors[3]->leading_elements(), tensors[3]->last_dimension());
    case Op::kAttention: return pass == Pass::kForward ? 0 : attention_backward_scratch_bytes(*tensors[2], *tensors[3]);
    case Op::kLossHead:
      if (pass == Pass::kBackward) return cpu_loss_head_backward_scratch_bytes(tensors);
      return cpu_loss_head_evaluate_scratch_bytes(tensors);
    default: return 0;
  }
}

}  // namespace reprise
