// Puts a kernel of a test's own into a backend.
// Here so that tests which plant wrong kernels do not know how a backend holds its kernels: kernel_of() alone does.
#pragma once

#include <type_traits>

#include "lib/backend.h"

namespace reprise::test {

// Of the kernels that tests plant.
template <Op op, Pass pass, typename Table>
auto& kernel_of(Table& table) {
  constexpr bool forward = pass == Pass::kForward;
  if constexpr ((op == Op::kConv || op == Op::kNormConv) && forward) return table.conv_forward;
  else if constexpr ((op == Op::kConv || op == Op::kNormConv) && pass == Pass::kBackwardWeight) return table.conv_backward_weight;
  else if constexpr (op == Op::kBatchNorm && pass == Pass::kStatistics) return table.batch_norm_statistics;
  else if constexpr ((op == Op::kBatchNorm || op == Op::kNormRelu) && pass == Pass::kBackward) return table.batch_norm_backward;
  else if constexpr (op == Op::kNormAddRelu && forward) return table.norm_add_relu_forward;
  else if constexpr (op == Op::kRelu && forward) return table.relu_forward;
  else if constexpr (op == Op::kRelu && pass == Pass::kBackward) return table.relu_backward;
  else if constexpr (op == Op::kAdd && forward) return table.add_forward;
  else if constexpr (op == Op::kMaxPool && forward) return table.max_pool_forward;
  else if constexpr (op == Op::kLinear && pass == Pass::kBackwardBias) return table.linear_backward_bias;
  else if constexpr (op == Op::kDropout) return table.dropout;
  else if constexpr (op == Op::kEmbedding && forward) return table.embedding_forward;
  else if constexpr (op == Op::kGradNorm && pass == Pass::kFinish) return table.grad_norm_finish;
  else static_assert(op == Op::kTransfer, "name this kernel's place here");
}

// `Stored`: the way of storing activations that the kernel takes. Two backends cannot hold different kernels in bf16 at a time.
template <Op op, Pass pass, typename Stored, auto kernel>
void plant(Backend& backend) {
  if constexpr (std::is_same_v<Stored, Bf16>) {
    static ActivationKernels<Bf16> table;
    if (backend.bf16 != nullptr) table = *backend.bf16;
    kernel_of<op, pass>(table) = kernel;
    backend.bf16 = &table;
  } else {
    kernel_of<op, pass>(backend) = kernel;
  }
}

}  // namespace reprise::test
